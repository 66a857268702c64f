"""OVOR against slow arithmetic."""

from typing import Any

import numpy as np
import pytest
import torch
from fakes import DIM, Task, small_backbone, train
from torch import Tensor, tensor

from hashprompt.methods.ovor import method as outliers
from hashprompt.methods.ovor.config import OvorConfig
from hashprompt.methods.ovor.method import (
    OUTLIER,
    Ovor,
    energy,
    energy_loss,
    kth_distance,
    virtual_outliers,
)

close = torch.testing.assert_close


def make_ovor(**options: Any) -> Ovor:
    defaults = {"layers": (1, 2), "prompt_lengths": (1, 3), "noise_draws": 20, "batch_size": 5}
    return Ovor(OvorConfig(**{**defaults, **options}), small_backbone(4, lively=False))


def found_outliers(features: Tensor, count: int, **options: Any) -> Tensor:
    return virtual_outliers(features, count, OvorConfig(**options))


def second_task(**options: Any) -> tuple[Ovor, Task]:
    """A learner in the middle of its second task."""
    method = make_ovor(**options)
    for task in (Task(0, (0, 1)), Task(1, (2, 3))):
        method.begin_task(task)
        train(method, task)
    return method, task


# Outliers. -----------------------------------------------------------------------------------


def slow_kth(point: np.ndarray, among: np.ndarray, k: int) -> float:
    return sorted(float(np.sqrt(((point - other) ** 2).sum())) for other in among)[k - 1]


def slow_unit(rows: np.ndarray) -> np.ndarray:
    return np.stack([row / np.sqrt((row**2).sum()) for row in rows])


def slow_outliers(
    features: np.ndarray, noise: np.ndarray, count: int, k: int, boundary: int
) -> np.ndarray:
    """The farthest of boundary + noise, one candidate after the other."""
    unit = slow_unit(features)
    lonely = sorted(range(len(unit)), key=lambda i: -slow_kth(unit[i], unit, k))[:boundary]
    candidates = [features[i] + offset for i in lonely for offset in noise]
    return np.stack(sorted(candidates, key=lambda c: -slow_kth(slow_unit([c])[0], unit, k))[:count])


def drawn_noise(seed: int, draws: int, scale: float) -> np.ndarray:
    torch.manual_seed(seed)
    return (scale * torch.randn(draws, 4)).numpy()


def test_the_distance_is_to_the_kth_nearest_with_the_point_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outliers, "CHUNK", 3)  # several chunks
    points = torch.randn(8, 4)
    for k in (2, 5, 8):
        expected = [slow_kth(p, points.numpy(), k) for p in points.numpy()]
        close(kth_distance(points, points, k), tensor(expected))
    by_hand = kth_distance(tensor([[0.0]]), tensor([[1.0], [-3.0], [2.0]]), 2)
    assert by_hand.tolist() == [2.0]


def test_outliers_are_the_farthest_noisy_copies_of_the_loneliest_features() -> None:
    features = 3 * torch.randn(12, 4, generator=torch.Generator().manual_seed(1)) + 1
    torch.manual_seed(7)
    found = found_outliers(features, 10, neighbours=4, boundary=3, noise_draws=6, noise=0.5)
    expected = slow_outliers(features.numpy(), drawn_noise(7, 6, 0.5), 10, 4, 3)
    close(found, torch.from_numpy(expected))


def test_a_task_of_few_images_has_fewer_neighbours_and_a_smaller_boundary() -> None:
    features = torch.randn(3, 4)
    found = found_outliers(features, 400, noise_draws=2)
    assert found.shape == (6, 4)
    assert found.isfinite().all()
    assert found_outliers(features[:1], 400, noise_draws=2).shape == (2, 4)


# Losses. -------------------------------------------------------------------------------------


def test_energy_by_hand() -> None:
    logits = tensor([[0.0, 0.0], [3.0, 1.0]]).log()
    close(energy(logits.clamp(min=-100)), -tensor([np.log(2) - 100, np.log(4)]).float())


def test_energies_cost_what_huber_says_beyond_their_limits() -> None:
    inside = tensor([-20.0, -14.5, -10.0])  # beyond −15 by nothing, 0.5 and 5
    outside = tensor([0.0, -3.2])  # below −3 by nothing and 0.2
    expected = (0 + 0.5**2 / 2 + (5 - 0.5)) / 3 + (0 + 0.2**2 / 2) / 2
    assert float(energy_loss(inside, outside, -15, -3)) == pytest.approx(expected)


def test_the_second_stage_looks_at_the_tasks_own_classes_alone() -> None:
    method, task = second_task(outlier_weight=0.1)
    batch = method._draw(task)[0]
    with torch.no_grad():
        found = method._outlier_step(batch, task)
    logits = method.head(batch.inputs)[:, 2:].detach().double()
    inside = batch.labels != OUTLIER
    picked = logits[inside].gather(1, batch.labels[inside][:, None] - 2)[:, 0]
    ce = (logits[inside].exp().sum(1).log() - picked).mean()
    assert float(found["ce"]) == pytest.approx(float(ce), rel=1e-5)
    values = -logits.exp().sum(1).log()

    def huber(x: Tensor) -> Tensor:
        return torch.where(x < 1, x**2 / 2, x - 0.5).mean()

    apart = huber((values[inside] + 15).clamp(min=0)) + huber((-3 - values[~inside]).clamp(min=0))
    assert float(found["energy"]) == pytest.approx(0.1 * float(apart), rel=1e-5)


# Stages. -------------------------------------------------------------------------------------


def test_every_feature_comes_once_with_its_share_of_outliers() -> None:
    method, task = second_task(outliers_per_class=10)
    torch.manual_seed(0)
    batches = method._draw(task)  # 12 features in batches of 5, 20 outliers
    assert [len(b.labels) for b in batches] == [5 + 6, 5 + 6, 2 + 6]
    seen = torch.cat([b.inputs[b.labels != OUTLIER] for b in batches])
    labels = torch.cat([b.labels[b.labels != OUTLIER] for b in batches])
    whole = method.features_of(task.see(task.pixels)).detach()
    nearest = torch.cdist(seen, whole).argmin(1)
    assert sorted(nearest.tolist()) == list(range(12))
    assert torch.equal(task.labels[nearest], labels)
    far = torch.cat([b.inputs[b.labels == OUTLIER] for b in batches])
    assert far.unique(dim=0).shape == (18, DIM)


def test_fewer_outliers_than_batches_come_round_again() -> None:
    method, task = second_task(outliers_per_class=1, batch_size=2)
    batches = method._draw(task)
    far = torch.cat([b.inputs[b.labels == OUTLIER] for b in batches])
    assert len(batches) == len(far) == 6
    assert torch.equal(far[:2], far[2:4])


def test_the_second_stage_moves_the_tasks_own_rows_of_the_head_alone() -> None:
    method, task = second_task()
    before = {k: v.clone() for k, v in method.state_dict().items()}
    train(method, task, "outliers")
    assert torch.equal(method.prompts, before["prompts"])
    assert torch.equal(method.head.weight[:2], before["head.weight"][:2])
    assert (method.head.weight[2:] - before["head.weight"][2:]).abs().min() > 0


def test_the_second_stage_moves_energies_towards_their_limits() -> None:
    method, task = second_task(noise=1.0)
    before = method._outlier_step(method._draw(task)[0], task)["energy"]
    train(method, task, "outliers", steps=20)
    assert method._outlier_step(method._draw(task)[0], task)["energy"] < 0.8 * before


def test_one_decay_of_the_rate_runs_over_both_stages() -> None:
    method, task = second_task(epochs=3, outlier_epochs=2)
    rates = []
    for phase in method.phases(task):
        assert callable(phase.schedule)
        rates += [phase.schedule(epoch, phase.epochs) for epoch in range(phase.epochs)]
    assert rates == pytest.approx([np.cos(99 * np.pi * e / (200 * 4)) for e in range(5)])


def test_without_outliers_there_is_one_stage() -> None:
    method, task = second_task(outliers=False)
    (phase,) = method.phases(task)
    assert (phase.name, phase.schedule) == ("train", "coda")


# The prompt. ---------------------------------------------------------------------------------


def test_every_image_gets_the_same_prompt_and_one_pass() -> None:
    method = make_ovor()
    assert method.prompts.min() >= 0
    assert method.prompts.max() <= 1
    images = Task(0, (0,)).images
    method.begin_task(Task(0, (0,)))
    prefix = method.prompt(images, images, training=False).inject.prefix
    for block, rows in ((0, slice(0, 1)), (1, slice(1, 4))):
        given = prefix[block]
        assert isinstance(given, Tensor)
        assert torch.equal(given, method.prompts[None, :, rows].expand(6, -1, -1, -1))
    method.predict(images)
    assert method.backbone.passes == {"prompted+grad": 6}
