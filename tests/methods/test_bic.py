"""BiC: both stages against direct computations."""

import math

import numpy as np
import pytest
import torch
from fakes import Task, batches_of, carry_out, rehearsed
from scipy.optimize import minimize

from hashprompt.methods.bic.method import DECAY, fit_scale_and_shift

close = torch.testing.assert_close


# Second stage. -----------------------------------------------------------------------------


def test_scale_and_shift_are_those_of_a_direct_fit() -> None:
    torch.manual_seed(0)
    logits, labels = 2 * torch.randn(60, 5), torch.randint(5, (60,))
    logits[torch.arange(60), labels] += 1.5
    logits[:, 3:] = 2.5 * logits[:, 3:] + 3  # new classes are too loud
    z = logits.numpy().astype(np.float64)

    def loss(pair: np.ndarray) -> float:
        total = 0.0
        for row, label in zip(z, labels.tolist(), strict=True):
            moved = [*row[:3], *(pair[0] * row[3:] + pair[1])]
            total += np.log(np.exp(moved).sum()) - moved[label]
        return total / 60 + DECAY * ((pair[0] - 1) ** 2 + pair[1] ** 2)

    expected = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8}).x
    moved = torch.tensor([False, False, False, True, True])
    found = fit_scale_and_shift(logits, labels, moved)
    close(found, torch.tensor(expected).float(), rtol=1e-3, atol=1e-3)
    assert found[0] < 0.7
    assert found[1] < -0.5


def test_images_that_are_told_apart_perfectly_give_a_finite_scale() -> None:
    logits = torch.tensor([[0.0, -5.0], [0.0, 5.0]])
    found = fit_scale_and_shift(logits, torch.tensor([0, 1]), torch.tensor([False, True]))
    assert found.isfinite().all()
    assert 1 < found[0] < 100


def test_the_correction_is_fitted_to_held_out_images_of_old_and_new_classes() -> None:
    options = {"buffer_per_class": 4, "held_out": 0.5}
    method, (_, task) = rehearsed("bic", (0, 1), (2, 3, 4), **options)
    memory = method.memory
    assert memory.labels.bincount().tolist() == [4] * 5
    pair = method.correction[1].clone()
    assert method.correction[0].tolist() == [1, 0]
    assert pair.tolist() != [1, 0]
    # The first two of each class in the memory are the held-out ones.
    rows = [r for c in range(5) for r in (memory.labels == c).nonzero()[:2, 0].tolist()]
    method.correction[1] = torch.tensor([1.0, 0.0])
    with torch.no_grad():
        logits = method.logits(task.see(memory.images[rows], "clean"))
    new = torch.arange(5) >= 2
    expected = fit_scale_and_shift(logits, memory.labels[rows], new)
    close(pair, expected, rtol=1e-3, atol=1e-3)


def test_held_out_images_never_train() -> None:
    options = {"buffer_per_class": 4, "held_out": 0.5}
    method, (first,) = rehearsed("bic", (0, 1), **options)
    assert first.labels[method.held_out].bincount().tolist() == [2, 2]
    held = first.pixels[method.held_out]
    kept = [row for row in range(8) if any(torch.equal(method.memory.images[row], i) for i in held)]
    assert len(kept) == 4
    task = Task(1, (2, 3))
    method.begin_task(task)
    assert method._validation(task).sort().values.tolist() == kept
    train = method.phases(task)[0]
    seen = torch.cat([rows for _, rows in batches_of(train, task)]).tolist()
    assert sorted(seen + method.held_out.tolist()) == list(range(12))
    assert len(method.held_out) == 4
    drawn: set[int] = set()
    plain_draw = method.memory.draw
    method.memory.draw = lambda n, among: drawn.update(among.tolist()) or plain_draw(n, among)
    carry_out(train, task)
    assert drawn == set(range(8)) - set(kept)


def test_what_was_trained_on_is_never_held_out_later() -> None:
    method, tasks = rehearsed("bic", (0, 1), buffer_total=8, held_out=0.5, epochs=1)
    first = tasks[0]
    clean = {tuple(first.pixels[row].flatten().tolist()) for row in method.held_out}
    for index, classes in ((1, (2, 3)), (2, (4,))):
        task = Task(index, classes)
        method.begin_task(task)
        for row in method._validation(task).tolist():
            if method.memory.labels[row] < 2:
                assert tuple(method.memory.images[row].flatten().tolist()) in clean
        for phase in method.phases(task):
            carry_out(phase, task)
        assert len(method.memory) == 8


def test_domains_need_no_correction_and_hold_nothing_out() -> None:
    method, tasks = rehearsed("bic", (0, 1), (0, 1), (0, 1), buffer_per_class=4)
    assert method.correction.tolist() == [[1, 0]] * 3
    train, correct, _ = method.phases(tasks[-1])
    assert len(train.rows) == 12
    assert len(method._validation(tasks[-1])) == 0
    with torch.no_grad():
        before = method.predict(tasks[0].see(tasks[0].pixels)).logits
        correct.work()
        assert torch.equal(method.predict(tasks[0].see(tasks[0].pixels)).logits, before)


def test_no_scale_and_shift_of_all_classes_changes_an_answer() -> None:
    """Which is why domains skip the second stage."""
    torch.manual_seed(0)
    logits, labels = torch.randn(30, 4), torch.arange(30) % 4
    logits[torch.arange(30), labels] += 1
    pair = fit_scale_and_shift(logits, labels, torch.ones(4, dtype=torch.bool))
    assert pair[0] > 0
    assert torch.equal((pair[0] * logits + pair[1]).argmax(1), logits.argmax(1))


# First stage. ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (((0, 1),), 0),
        (((0, 1), (2, 3, 4)), 2 / 5),
        (((0, 1), (2, 3, 4), (5,)), 5 / 6),
        (((0, 1), (0, 1)), 1 / 2),  # domains: (t − 1) / t
        (((0, 1), (0, 1), (0, 1)), 2 / 3),
    ],
)
def test_the_weight_of_the_teacher_is_the_share_of_what_is_old(
    parts: tuple[tuple[int, ...], ...], expected: float
) -> None:
    method, tasks = rehearsed("bic", *parts, epochs=1, trainable="head")
    assert method.old_share(tasks[-1]) == pytest.approx(expected)


@pytest.mark.parametrize("classes", [(3, 4), (0, 1)])
def test_the_loss_distils_the_corrected_learner_before(classes: tuple[int, ...]) -> None:
    options = {"temperature": 3.0, "replay_batch": 3, "buffer_per_class": 4}
    method, _ = rehearsed("bic", (0, 1), (2,), **options)
    method.head.weight.data.normal_()  # loud enough that each image counts
    method.correction[1] = torch.tensor([1.7, -0.8])
    task = Task(2, classes)
    images = task.see(task.pixels)[:5]
    with torch.no_grad():
        teacher = method.predict(images).logits
        replayed = method.predict(task.see(method.memory.images)).logits
    method.begin_task(task)
    for parameter in method.parameters():  # the learner moves on, the teacher stays
        parameter.data += 0.05 * torch.randn_like(parameter)
    batch = next(batches_of(method.phases(task)[0], task))[0]
    batch = batch._replace(inputs=images, labels=task.labels[:5])
    torch.manual_seed(7)
    found = method.phases(task)[0].step(batch)
    torch.manual_seed(7)
    left = [r for r in range(len(method.memory)) if r not in method._validation(task).tolist()]
    chosen = torch.tensor(left)[torch.randperm(len(left))[:2]]  # 3 · 5/8, rounded up
    targets = torch.cat((teacher, replayed[chosen]))
    both = torch.cat((images, task.see(method.memory.images[chosen])))
    labels = torch.cat((task.labels[:5], method.memory.labels[chosen]))
    ce = kd = 0.0
    with torch.no_grad():
        for z, target, label in zip(method.logits(both), targets, labels, strict=True):
            ce -= float(z.log_softmax(0)[label]) / 7
            old = [float(value) / 3 for value in z[:3]]
            norm = math.log(sum(math.exp(value) for value in old))
            weights = [math.exp(float(value) / 3) for value in target]
            for value, weight in zip(old, weights, strict=True):
                kd -= weight / sum(weights) * (value - norm) / 7
    share = 3 / 5 if classes == (3, 4) else 2 / 3
    close(found["ce"], torch.tensor((1 - share) * ce), rtol=1e-4, atol=1e-4)
    close(found["kd"], torch.tensor(share * kd), rtol=1e-4, atol=1e-4)


def test_a_correction_is_of_the_classes_of_its_task() -> None:
    method, (_, task) = rehearsed("bic", (0, 1), (2,), buffer_per_class=4)
    images = task.see(task.pixels)
    scale, shift = method.correction[1]
    with torch.no_grad():
        raw = method.head(method.features(images))
        found = method.predict(images).logits
    close(found[:, :2], raw[:, :2])
    close(found[:, 2], scale * raw[:, 2] + shift)
