"""EASE: prototypes in all subspaces, true and synthesised, and how they answer."""

import math
from functools import partial
from typing import Any

import fakes
import pytest
import torch
from fakes import DIM, Task
from torch import Tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.ease.method import Ease, synthesised, weighted_cosines

learned = partial(fakes.learned, "ease", adapter_width=4, lr=0.5)

close = torch.testing.assert_close
TASKS = ((0, 1), (2, 3, 4), (5,))  # of unequal sizes


def slow_cosine(a: Tensor, b: Tensor) -> float:
    dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(float(x) ** 2 for x in a) * sum(float(y) ** 2 for y in b))


@torch.no_grad()
def slow_feature(method: Ease, images: Tensor, task: int | None) -> Tensor:
    """timm's blocks written out, with the adapters of a task beside the MLPs."""
    vit: Any = method.backbone.vit
    x = vit._pos_embed(vit.patch_embed(images))
    for index, block in enumerate(vit.blocks):
        x = x + block.attn(block.norm1(x))
        branch = block.mlp(block.norm2(x))
        if task is not None:
            down, up = method.adapters.down.stacked()[task], method.adapters.up.stacked()[task]
            hidden = (x @ down[index, :-1] + down[index, -1]).clamp(min=0)
            branch = branch + 0.1 * (hidden @ up[index, :-1] + up[index, -1])
        x = x + branch
    return vit.norm(x)[:, 0]


# Synthesis and scores. ---------------------------------------------------------------------


@pytest.mark.parametrize("plain", [0, 1])
def test_prototypes_in_new_subspaces_are_weighted_by_similarity(plain: int) -> None:
    """Loops over tasks, subspaces and classes; with plain features the home is one later."""
    torch.manual_seed(0)
    home = torch.tensor([0, 0, 1, 1, 1, 2]) + plain
    true = torch.randn(6, 3 + plain, 5)
    found = synthesised(true, home)
    for m in range(6):
        for new in range(3 + plain):
            if new <= home[m]:
                assert torch.equal(found[m, new], true[m, new])
                continue
            own, later = int(home[m]), [c for c in range(6) if home[c] >= new]
            odds = [math.exp(slow_cosine(true[m, own], true[c, own])) for c in later]
            expected = torch.zeros(5)
            for c, odd in zip(later, odds, strict=True):
                expected += odd / sum(odds) * true[c, new]
            close(found[m, new], expected)


def test_what_was_synthesised_before_plays_no_part() -> None:
    torch.manual_seed(0)
    home, true = torch.tensor([0, 1, 1, 2]), torch.randn(4, 3, 5)
    blank = true.clone()
    blank[home[:, None] < torch.arange(3)] = 0
    assert torch.equal(synthesised(true, home), synthesised(blank, home))


def test_scores_are_sums_of_weighted_cosines() -> None:
    torch.manual_seed(0)
    features, prototypes, weights = torch.randn(2, 3, 5), torch.randn(4, 3, 5), torch.rand(4, 3)
    found = weighted_cosines(features, prototypes, weights)
    for b in range(2):
        for m in range(4):
            expected = sum(
                float(weights[m, j]) * slow_cosine(features[b, j], prototypes[m, j])
                for j in range(3)
            )
            assert float(found[b, m]) == pytest.approx(expected, abs=1e-5)


# The whole. --------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_answers_by_loops_over_classes_and_subspaces(beta: float) -> None:
    method, tasks = learned(*TASKS, alpha=0.3, beta=beta)
    images = torch.cat([task.images for task in tasks])[::5]
    spaces: list[int | None] = [*([None] if beta else []), 0, 1, 2]
    features = {j: slow_feature(method, images, j) for j in spaces}
    with torch.no_grad():
        logits = method.predict(images).logits
    assert logits.shape == (len(images), 6)
    table = dict(zip(spaces, method.prototypes.unbind(1), strict=True))
    for b in range(len(images)):
        for c in range(6):
            own = next(i for i, task in enumerate(tasks) if c in task.classes)
            score = slow_cosine(features[own][b], table[own][c])
            others = [slow_cosine(features[j][b], table[j][c]) for j in range(3) if j != own]
            score += 0.3 / 2 * sum(others)
            score += beta * slow_cosine(features[None][b], table[None][c]) if beta else 0
            assert float(logits[b, c]) == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_new_classes_have_true_prototypes_in_all_subspaces(beta: float) -> None:
    method, tasks = learned(*TASKS, beta=beta)
    spaces: list[int | None] = [*([None] if beta else []), 0, 1, 2]
    for i, task in enumerate(tasks):
        for j, of in enumerate(spaces):
            if of is not None and of > i:
                continue
            features = slow_feature(method, task.images, of)
            for c in task.classes:
                mean = features[task.labels == c].mean(0)
                close(method.prototypes[c, j], mean, atol=1e-5, rtol=1e-4)


def test_with_one_task_it_is_a_cosine_classifier() -> None:
    method, (task,) = learned((0, 1, 2), alpha=0.9)
    features = slow_feature(method, task.images, 0)
    with torch.no_grad():
        logits = method.predict(task.images).logits
    for b in range(len(logits)):
        for c in range(3):
            mean = features[task.labels == c].mean(0)
            assert float(logits[b, c]) == pytest.approx(slow_cosine(features[b], mean), abs=1e-4)


def test_plain_features_are_used_when_they_count() -> None:
    for beta in (0.0, 1.0):
        method, (task, _) = learned((0, 1), (2,), beta=beta)
        wrong = torch.randn(3, DIM)
        with torch.no_grad():
            right, other = (method.predict(task.images[:3], p).logits for p in (None, wrong))
        assert torch.equal(right, other) == (beta == 0)


def test_a_class_of_several_domains_answers_with_its_best_cell() -> None:
    method, tasks = learned((0, 1), (0, 1), (0, 1))
    images = torch.cat([task.images for task in tasks])
    with torch.no_grad():
        features = torch.stack([slow_feature(method, images, j) for j in range(3)], dim=1)
        logits = method.predict(images).logits
    weights = 0.05 + 0.95 * torch.eye(3).repeat_interleave(2, dim=0)  # α / 2 beside one's own
    cells = weighted_cosines(features, method.prototypes, weights)
    close(logits, cells.view(-1, 3, 2).amax(1), atol=1e-4, rtol=1e-4)


# Training. ---------------------------------------------------------------------------------


def test_the_newest_adapters_learn_cosines_of_the_tasks_own_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hashprompt.methods.ease.method.DROPOUT", 0.0)
    method, _ = learned((0, 1))
    task = Task(1, (3, 2), method.backbone)
    method.begin_task(task)
    method.adapters.up.current.data.normal_()
    phase = method.phases(task)[0]
    assert phase.step is not None
    losses: Any = phase.step(Batch(task.images, task.labels))
    features, head = slow_feature(method, task.images, 1), method.session_head.weight.detach()
    assert len(head) == 2
    total = 0.0
    for feature, label in zip(features, task.labels, strict=True):
        cosines = [slow_cosine(feature, row) for row in head]
        total -= math.log(
            math.exp(cosines[task.classes.index(int(label))]) / sum(map(math.exp, cosines))
        )
    assert float(losses["ce"]) == pytest.approx(total / len(task.labels), abs=1e-4)
    trained = {parameter for group in phase.groups for parameter in group.params}
    current = {method.adapters.down.current, method.adapters.up.current}
    assert trained == current | set(method.session_head.parameters())


def test_hidden_units_are_dropped_in_training_alone() -> None:
    method, (task,) = learned((0, 1))
    phase = method.phases(task)[0]
    assert phase.step is not None
    batch = Batch(task.images, task.labels)
    assert not torch.equal(phase.step(batch)["ce"], phase.step(batch)["ce"])  # type: ignore[call-overload]
    with torch.no_grad():
        assert torch.equal(method.predict(task.images).logits, method.predict(task.images).logits)


def test_each_task_starts_with_adapters_that_add_nothing_and_a_fresh_head() -> None:
    method, _ = learned((0, 1))
    assert method.adapters.up.current.any()
    old = method.adapters.up.current.detach().clone()
    method.begin_task(Task(1, (2, 3, 4), method.backbone))
    assert not method.adapters.up.current.any()
    assert torch.equal(method.adapters.up.frozen[0], old)
    assert method.session_head.weight.shape == (3, DIM)
    assert method.session_head.scale.item() == 1
