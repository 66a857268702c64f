"""GDumb: what it keeps, that it starts anew, and CutMix."""

import pytest
import torch
import torch.nn.functional as F
from fakes import Task, rehearsed
from scipy.stats import kstest

from hashprompt.methods.base import Batch
from hashprompt.methods.gdumb.cut_mix import cut_mix

close = torch.testing.assert_close


def test_classes_share_the_memory_evenly() -> None:
    method, _ = rehearsed("gdumb", (0, 1), (2,), (3, 4, 5), buffer_total=12)
    assert method.memory.labels.bincount().tolist() == [2] * 6
    method, _ = rehearsed("gdumb", (0, 1), (0, 1), buffer_per_class=4)  # domains: the first stay
    assert method.memory.tasks.tolist() == [0] * 8


def test_every_task_starts_from_the_pretrained_weights_and_a_new_head() -> None:
    method, _ = rehearsed("gdumb", (0, 1), buffer_per_class=4)
    original = dict(method.backbone.vit.named_parameters())
    trained = {name: value.clone() for name, value in method.vit.tensors().items()}
    assert not any(torch.equal(value, original[name]) for name, value in trained.items())
    before = method.head.weight.detach().clone()
    method.begin_task(Task(1, (2, 3)))
    assert all(torch.equal(value, original[name]) for name, value in method.vit.tensors().items())
    assert method.head.weight.shape == (4, 16)
    assert not torch.equal(method.head.weight[:2], before)
    method.begin_task(Task(2, (0, 1)))  # classes that are known stay answerable
    assert len(method.head.bias) == 4


def test_nothing_is_learned_from_images_that_are_not_kept() -> None:
    method, (task,) = rehearsed("gdumb", (0, 1), buffer_per_class=1)
    assert [phase.name for phase in method.phases(task)] == ["collect", "fit"]
    assert len(task.read) == 2
    batches = method.memory_batches()
    assert sorted(torch.cat([b.inputs for b in batches]).tolist()) == [0, 1]
    for batch in batches:
        assert torch.equal(batch.labels, method.memory.labels[batch.inputs])


def test_a_step_without_cutmix_is_the_cross_entropy_of_kept_images() -> None:
    method, (task,) = rehearsed("gdumb", (0, 1), buffer_per_class=3, cutmix=0)
    rows = torch.tensor([4, 0, 2])
    labels = method.memory.labels[rows]
    found = method.phases(task)[1].step(Batch(rows, labels))["ce"]
    images = task.see(method.memory.images[rows], "train")
    close(found, F.cross_entropy(method.logits(images), labels))


def test_half_of_the_steps_mix_images_and_labels_by_area() -> None:
    method, (task,) = rehearsed("gdumb", (0, 1), buffer_per_class=3, cutmix=0.8)
    rows = torch.arange(6)
    labels = method.memory.labels
    images = task.see(method.memory.images, "train")
    ways = set()
    for seed in range(8):
        torch.manual_seed(seed)
        found = method.phases(task)[1].step(Batch(rows, labels))["ce"]
        torch.manual_seed(seed)
        mixes = bool(torch.rand(()) < 0.5)
        ways.add(mixes)
        mixed, other, share = cut_mix(images, 0.8) if mixes else (images, rows, 1.0)
        expected = 0.0
        for i, z in enumerate(method.logits(mixed).log_softmax(1)):
            expected -= float(share * z[labels[i]] + (1 - share) * z[labels[other[i]]]) / 6
        close(found, torch.tensor(expected), rtol=1e-4, atol=1e-4)
    assert ways == {True, False}


def test_cutmix_shows_a_window_of_another_image() -> None:
    torch.manual_seed(3)
    images = torch.arange(5.0)[:, None, None, None].expand(5, 3, 20, 30).clone()
    partly = 0
    for _ in range(20):
        mixed, other, share = cut_mix(images, 1.0)
        for i in range(5):
            inside = mixed[i] != i if other[i] != i else torch.zeros(3, 20, 30, dtype=torch.bool)
            assert (mixed[i][inside] == other[i]).all()
            if other[i] != i:
                assert share == pytest.approx(1 - inside[0].sum().item() / 600)
                ys, xs = inside[0].any(1).nonzero(), inside[0].any(0).nonzero()
                if len(ys):
                    box = inside[0, ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1]
                    assert box.all()
                    partly += 1
    assert partly > 20


def test_the_size_of_the_window_is_beta_distributed() -> None:
    """Of windows that are not cut off at the border, which small ones hardly are."""
    torch.manual_seed(0)
    image = torch.zeros(1, 1, 400, 400)
    areas = []
    for _ in range(300):
        share = cut_mix(image, 1.0)[2]
        areas.append(1 - share)
    small = [area / 0.05 for area in areas if area < 0.05]  # Beta(1, 1) is uniform
    assert len(small) > 5
    assert 0.25 < sum(areas) / 300 < 0.45  # half of it, less what is cut off
    assert kstest(small, "uniform").pvalue > 0.01
