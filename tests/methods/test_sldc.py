"""SLDC: pairs, distillation, Gaussians that follow, and the refined head."""

import math
from typing import Any

import pytest
import torch
from fakes import DIM, Task, small_backbone, train

from hashprompt.methods.base import Batch
from hashprompt.methods.sldc.config import SLDCConfig
from hashprompt.methods.sldc.method import SLDC, LinearDrift

close = torch.testing.assert_close
TASKS = ((0, 1), (2, 3, 4))


def begun(**options: Any) -> tuple[SLDC, Task]:
    """After the first task and the training of the second."""
    method = SLDC(
        SLDCConfig(align_samples=8, operator_steps=4, **options), small_backbone(4, lively=False)
    )
    for index, classes in enumerate(TASKS):
        task = Task(index, classes)
        method.begin_task(task)
        train(method, task, steps=1)
        if index == 0:
            method.describe(task)
    return method, task


def test_factors_change_nothing_at_first_and_features_later() -> None:
    method = SLDC(SLDCConfig(), small_backbone(4, lively=False))
    images = Task(0, (0,)).images
    learned, _ = begun()
    with torch.no_grad():
        assert torch.equal(method.features(images), method.backbone(images))
        assert not torch.allclose(learned.features(images), method.backbone(images), atol=1e-3)


def test_distillation_by_hand() -> None:
    method, task = begun(distill=0.7, distill_norm=0.2)
    method.backbone.vit.norm.weight.data = torch.linspace(0.5, 4, DIM)  # else all norms are equal
    with torch.no_grad():
        now = method.features(task.images)
        before = method.features(task.images, method.teacher.tensors())
        found = method.losses(Batch(task.images, task.labels), task)["distill"]
    change = norms = size = 0.0
    for one, other in zip(now.tolist(), before.tolist(), strict=True):
        change += sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / (len(now) * DIM)
        lengths = [sum(a * a for a in vector) ** 0.5 for vector in (one, other)]
        norms += (lengths[0] - lengths[1]) ** 2 / len(now)
        size += sum(b * b for b in other) / (len(now) * DIM)
    assert norms > 0.01 * change
    assert size > 2
    assert float(found) == pytest.approx((0.7 * change + 0.2 * norms) / size, rel=1e-3)


def test_distillation_begins_with_the_second_task_and_can_be_left_out() -> None:
    method, task = begun()
    assert set(method.losses(Batch(task.images, task.labels), task)) == {"sce", "distill"}
    first = Task(0, TASKS[0])
    assert set(method.losses(Batch(first.images, first.labels), first)) == {"sce"}
    method, task = begun(distill=0.0)
    assert set(method.losses(Batch(task.images, task.labels), task)) == {"sce"}


def test_training_compares_new_classes_alone_by_both_cross_entropies() -> None:
    method, task = begun(forward_loss=0.4, reverse_loss=0.6)
    with torch.no_grad():
        logits = method.head(method.features(task.images))
        found = method.losses(Batch(task.images, task.labels), task)["sce"]
    p = logits[:, 2:].softmax(1)[torch.arange(len(task.labels)), task.labels - 2]
    close(found, (-0.4 * p.log() + 0.6 * 9.2103404 * (1 - p)).mean())


@pytest.mark.parametrize("operator", ["linear", "weakly-nonlinear"])
def test_pairs_are_of_the_same_clean_images_whatever_the_seed(operator: str) -> None:
    method, task = begun(operator=operator)
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        method.look_back(task)
        found.append(method.pairs)
    assert torch.equal(*found)
    assert task.views == ["clean"] * 2
    with torch.no_grad():
        close(found[0][:, 0], method.features(task.images, method.teacher.tensors()))
        close(found[0][:, 1], method.features(task.images))


def test_gaussians_of_old_classes_follow_the_linear_operator_without_jitter() -> None:
    method, task = begun(operator="linear", jitter=0.5, operator_ridge=0.1)
    old = method.gaussians.means.clone(), method.gaussians.spread.clone()
    method.look_back(task)
    before, after = method.pairs.unbind(1)
    drift = LinearDrift(before, after, 0.1, 1.0)
    matrix = drift.slope + torch.eye(DIM)
    method.describe(task)
    assert len(method.pairs) == 0  # nothing of the images stays
    close(method.gaussians.means[:2], (old[0].double() @ matrix).float())
    expected = (matrix.T @ old[1].double() @ matrix).float()
    close(method.gaussians.spread[:2], expected, rtol=1e-4, atol=1e-5)
    own = after[task.labels == 3]
    close(method.gaussians.means[3], own.mean(0))
    close(method.gaussians.spread[3], own.T.cov() + 1e-4 * torch.eye(DIM), rtol=1e-4, atol=1e-5)


def test_the_weakly_nonlinear_operator_learns_the_pairs_and_moves_the_gaussians() -> None:
    method, task = begun(operator_lr=0.01)
    old = method.gaussians.means.clone()
    method.operator.gates.data.fill_(5.0)
    method.look_back(task)
    assert method.operator.gates.tolist() == [1, 0, 0]  # nothing of the last task
    batches = method.draw_pairs()
    assert [batch.inputs.shape for batch in batches] == [(32, 2, DIM)] * 4
    directions = method.pairs / method.pairs.norm(dim=2, keepdim=True)
    for drawn in batches[0].inputs:  # before and after stay together
        assert (drawn - directions).abs().amax((1, 2)).min() < 1e-5
    first = method.operator_losses(batches[0])
    before, after = batches[0].inputs.unbind(1)
    fit = ((method.operator(before) - after) ** 2).sum() / (32 * DIM)
    close(first["fit"], fit)
    share = torch.tensor([1.0, 0.0, 0.0]).softmax(0)[2]
    close(first["gate"], 0.5 * share**2)
    train(method, task, "operator", steps=5)
    assert method.operator_losses(batches[0])["gate"].item() < first["gate"].item()
    method.describe(task)
    assert not torch.allclose(method.gaussians.means[:2], old, atol=1e-3)


def test_how_factors_operator_and_head_are_trained() -> None:
    method, task = begun()
    method.look_back(task)
    method.describe(task)
    phases = {phase.name: phase for phase in method.phases(task)}
    assert list(phases) == ["train", "pairs", "operator", "statistics", "align"]
    trained, operator, align = phases["train"], phases["operator"], phases["align"]
    assert trained.optimizer == "adamw"
    assert [g.lr for g in trained.groups if g.params] == pytest.approx([1e-4, 1e-3])
    for phase, epochs, last in ((trained, 5, 1 / 3), (operator, 10, 0.5), (align, 6, 0.1)):
        assert phase.epochs == epochs
        assert phase.rate_factor(0, 0, 4) == 1
        at = epochs - 1 + (0.75 if phase is operator else 0)  # its rate changes with every step
        cosine = (1 + math.cos(math.pi * at / epochs)) / 2
        assert phase.rate_factor(epochs - 1, 3, 4) == pytest.approx(last + (1 - last) * cosine)
    assert align.optimizer == "adam"
    first = [phase.name for phase in method.phases(Task(0, TASKS[0]))]
    assert first == ["train", "statistics", "align"]
    assert align.draw is not None
    assert [len(batch.labels) for batch in align.draw()] == [16, 16, 8]  # 3.2 · 5 of 5 · 8


def test_refinement_starts_from_the_raw_head_with_jitter_and_leaves_it() -> None:
    method, task = begun()
    method.look_back(task)
    method.describe(task)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    assert torch.equal(method.aligned.weight, method.head.weight)
    train(method, task, "align", steps=1)
    changed = {n for n, v in method.state_dict().items() if not torch.equal(v, before[n])}
    assert changed == {"aligned.weight", "aligned.bias"}
    logits, labels = torch.randn(4, 5), torch.tensor([0, 2, 4, 1])
    p = logits.softmax(1)[torch.arange(4), labels]
    close(method.align_loss(logits, labels), (-0.5 * p.log() + 0.5 * 9.2103404 * (1 - p)).mean())
