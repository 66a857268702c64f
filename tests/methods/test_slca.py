"""SLCA: alignment against loops, and what no alignment may touch."""

import math
from typing import Any

import pytest
import torch
from fakes import DIM, Task, small_backbone, train
from torch import tensor

from hashprompt.methods.frames.classifier_alignment import per_task_norm, symmetric_cross_entropy
from hashprompt.methods.slca.config import SLCAConfig
from hashprompt.methods.slca.method import SLCA
from hashprompt.parts.cells import Cells

close = torch.testing.assert_close
TASKS = ((0, 1), (2, 3, 4), (5,))  # of unequal sizes


def work(method: SLCA, task: Task, name: str = "statistics") -> None:
    chosen = next(phase for phase in method.phases(task) if phase.name == name)
    assert chosen.work is not None
    chosen.work()


def learned(tasks: tuple[tuple[int, ...], ...] = TASKS, **options: Any) -> SLCA:
    method = SLCA(SLCAConfig(align_samples=8, **options), small_backbone(4, lively=False))
    for index, classes in enumerate(tasks):
        task = Task(index, classes)
        method.begin_task(task)
        train(method, task)
        work(method, task)
    return method


# The formulas. -----------------------------------------------------------------------------


def test_the_symmetric_cross_entropy_is_both_sums_written_out() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 5), tensor([1, 3, 4, 1])
    allowed = tensor([False, True, False, True, True])
    forward = reverse = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        shares = {k: math.exp(row[k]) for k in (1, 3, 4)}
        p = {k: share / sum(shares.values()) for k, share in shares.items()}
        forward -= math.log(p[label]) / 4
        for k, probability in p.items():
            reverse -= probability * math.log(1.0 if k == label else 1e-4) / 4
    found = symmetric_cross_entropy(logits, labels, allowed, 0.7, 0.3)
    assert float(found) == pytest.approx(0.7 * forward + 0.3 * reverse, rel=1e-5)


def test_logits_are_divided_by_the_mean_of_their_norms_in_each_task() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 6)
    found = per_task_norm(logits, tensor([0, 0, 1, 1, 1, 2]))
    for row, norm in zip(logits.tolist(), found[:, 0].tolist(), strict=True):
        norms = [math.sqrt(sum(row[k] ** 2 for k in own)) for own in TASKS]
        assert norm == pytest.approx(sum(norms) / 3, rel=1e-5)


def test_a_class_belongs_to_the_last_task_that_had_it() -> None:
    cells = Cells()
    for task, classes in enumerate([(0, 1), (2, 0), (3,)]):
        cells.add(task, classes)
    assert cells.task_of_class().tolist() == [1, 0, 1, 2]


def test_alignment_minimises_the_cross_entropy_of_normalised_logits() -> None:
    method = learned()
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 6), tensor([5, 0, 3, 2])
    expected = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        norm = sum(math.sqrt(sum(row[k] ** 2 for k in own)) for own in TASKS) / 3
        scaled = [value / norm / 0.1 for value in row]
        expected += (math.log(sum(map(math.exp, scaled))) - scaled[label]) / 4
    assert float(method.align_loss(logits, labels)) == pytest.approx(expected, rel=1e-4)


def test_means_shrink_by_the_task_of_their_class_and_spreads_do_not() -> None:
    method = learned()
    means = method.gaussians.means.clone()
    draws = {}
    for decay in (0.1, 0.0):
        torch.manual_seed(0)
        phase = SLCA.alignment(method)
        method.config = method.config.model_copy(update={"mean_decay": decay})
        assert phase.draw is not None
        batches = phase.draw()
        draws[decay] = (
            torch.cat([b.inputs for b in batches]),
            torch.cat([b.labels for b in batches]),
        )
    (smaller, labels), (whole, same) = draws[0.1], draws[0.0]
    assert torch.equal(labels, same)
    assert labels.bincount().tolist() == [8] * 6
    for feature, plain, label in zip(smaller, whole, labels.tolist(), strict=True):
        task = next(t for t, own in enumerate(TASKS) if label in own)
        factor = 0.9 + 0.1 * (task + 1) / 3
        close(feature - plain, (factor - 1) * means[label], atol=1e-6, rtol=1e-4)


# What is trained, and what is left alone. --------------------------------------------------


def test_alignment_leaves_the_raw_head_and_the_vit_bit_by_bit() -> None:
    method = learned()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    close(before["aligned.weight"], before["head.weight"], rtol=0, atol=0)
    train(method, Task(2, TASKS[2]), "align")
    changed = {
        name for name, value in method.state_dict().items() if not torch.equal(value, before[name])
    }
    assert changed == {"aligned.weight", "aligned.bias"}


def test_the_raw_head_goes_on_as_if_it_had_never_been_aligned() -> None:
    heads = []
    for aligns in (True, False):
        method = learned(TASKS[:2])
        if aligns:
            train(method, Task(1, TASKS[1]), "align")
        torch.manual_seed(5)
        task = Task(2, TASKS[2])
        method.begin_task(task)
        train(method, task)
        work(method, task)
        heads.append((method.head.weight.clone(), method.aligned.weight.clone()))
    assert torch.equal(heads[0][0], heads[1][0])
    assert torch.equal(heads[0][1], heads[1][1])  # the copy starts from the raw head again


def test_old_rows_of_the_raw_head_do_not_decay() -> None:
    method = learned(TASKS[:1], weight_decay=0.1)
    old = method.head.weight[:2].clone()
    task = Task(1, TASKS[1])
    method.begin_task(task)
    fresh = method.head.weight.clone()
    train(method, task)
    assert torch.equal(method.head.weight[:2], old)
    assert not torch.isclose(method.head.weight[2:], fresh[2:]).any()


def test_gaussians_are_of_clean_features_after_training_and_stay() -> None:
    method = learned(TASKS[:1])
    task = Task(1, TASKS[1])
    first = method.gaussians.means.clone(), method.gaussians.spread.clone()
    method.begin_task(task)
    train(method, task)
    work(method, task)
    assert task.views == ["clean"]
    close((method.gaussians.means[:2], method.gaussians.spread[:2]), first, rtol=0, atol=0)
    with torch.no_grad():
        features = method.features(task.images)
    close(method.gaussians.means[3], features[task.labels == 3].mean(0))
    close(
        method.gaussians.spread[3],
        features[task.labels == 3].T.cov() + 1e-4 * torch.eye(DIM),
    )


def test_the_whole_vit_learns_slowly_and_its_rates_drop_late() -> None:
    method = learned(TASKS[:1])
    trained = method.phases(Task(0, TASKS[0]))[0]
    assert [group.lr for group in trained.groups] == [1e-4, pytest.approx(1e-2)]
    weights = sum(p.numel() for p in method.backbone.vit.parameters())
    assert sum(p.numel() for p in trained.groups[0].params) == weights
    factors = [trained.rate_factor(epoch, 0, 1) for epoch in range(20)]
    assert factors == [1.0] * 18 + [0.1] * 2
    assert [phase.name for phase in method.phases(Task(0, TASKS[0]))] == ["train", "statistics"]
