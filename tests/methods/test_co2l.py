"""Co²L: its losses written out, its groups, its classifier."""

import math

import pytest
import torch
import torch.nn.functional as F
from fakes import Task, batches_of, rehearsed
from torch import Tensor

from hashprompt.methods.co2l.method import asymmetric_contrast, relation_change

close = torch.testing.assert_close


def unit(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, 4, generator=generator), dim=1)


def slow_contrast(z: Tensor, groups: list[int], anchors: list[bool], tau: float) -> float:
    each = []
    for i in range(len(z)):
        positives = [j for j in range(len(z)) if j != i and groups[j] == groups[i]]
        if not anchors[i] or not positives:
            continue
        below = sum(math.exp(float(z[i] @ z[k]) / tau) for k in range(len(z)) if k != i)
        logs = [math.log(math.exp(float(z[i] @ z[j]) / tau) / below) for j in positives]
        each.append(-sum(logs) / len(logs))
    return sum(each) / len(each) if each else 0.0


def slow_change(new: Tensor, old: Tensor, kappa: float, tau: float) -> float:
    total = 0.0
    for i in range(len(new)):
        others = [j for j in range(len(new)) if j != i]
        p = torch.tensor([float(old[i] @ old[j]) / tau for j in others]).double().softmax(0)
        q = torch.tensor([float(new[i] @ new[j]) / kappa for j in others]).double().softmax(0)
        total -= float((p * q.log()).sum()) / len(new)
    return total


def test_only_new_images_are_anchors_but_all_are_compared_with() -> None:
    z, groups = unit(7), [0, 1, 0, 2, 2, 1, 3]
    anchors = [True, True, True, False, False, True, True]  # the last one is alone in its group
    found = asymmetric_contrast(z, torch.tensor(groups), torch.tensor(anchors), 0.3)
    close(found, torch.tensor(slow_contrast(z, groups, anchors, 0.3)))


def test_an_anchor_without_a_positive_is_no_nan_and_gives_no_gradient() -> None:
    z = unit(3).requires_grad_()
    loss = asymmetric_contrast(z, torch.arange(3), torch.ones(3, dtype=torch.bool), 0.5)
    loss.backward()
    assert loss == 0
    assert z.grad is not None
    assert not z.grad.any()


def test_relations_are_compared_without_those_to_oneself() -> None:
    new, old = unit(6).requires_grad_(), unit(6, seed=1)
    loss = relation_change(new, old, 0.2, 0.05)
    close(loss, torch.tensor(slow_change(new.detach(), old, 0.2, 0.05)), rtol=1e-4, atol=1e-4)
    loss.backward()
    assert new.grad is not None
    assert new.grad.isfinite().all()


@pytest.mark.parametrize("classes", [(2, 3), (0, 1)])
def test_the_loss_of_a_step(classes: tuple[int, ...]) -> None:
    options = {"temperature": 0.3, "relation_temperature": 0.4, "teacher_temperature": 0.2}
    more = {"replay_batch": 3, "projection": 4, "distill_weight": 0.6, "buffer_per_class": 3}
    method, _ = rehearsed("co2l", (0, 1), **options, **more)
    task = Task(1, classes)
    old_projector = [p.detach().clone() for p in method.projector.parameters()]
    batch, _ = next(batches_of(method.phases(task)[0], task))
    assert len(batch.inputs) == 2 * len(batch.labels)
    method.begin_task(task)
    memory = method.memory
    torch.manual_seed(3)
    chosen = torch.randperm(6)[:3]
    images = torch.cat((batch.inputs, *[task.see(memory.images[chosen])] * 2))
    with torch.no_grad():
        features = method.features(images)
    w1, b1, w2, b2 = old_projector
    before = F.normalize((features @ w1.T + b1).relu() @ w2.T + b2, dim=1)
    for parameter in method.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    torch.manual_seed(3)
    found = method.phases(task)[0].step(batch)
    with torch.no_grad():
        z = F.normalize(method.projector(method.features(images)), dim=1)
    new = [(label, 1) for label in batch.labels.tolist()] * 2
    kept = [(label, 0) for label in memory.labels[chosen].tolist()] * 2
    names = sorted({*new, *kept})  # a class in another domain is another group
    groups = [names.index(cell) for cell in new + kept]
    anchors = [True] * len(new) + [False] * len(kept)
    close(
        found["contrast"],
        torch.tensor(slow_contrast(z, groups, anchors, 0.3)),
        rtol=1e-4,
        atol=1e-4,
    )
    change = slow_change(z, before, 0.4, 0.2)
    close(found["relations"], torch.tensor(0.6 * change), rtol=1e-4, atol=1e-4)


def test_the_classifier_sees_every_class_as_often_on_frozen_features() -> None:
    method, (_, task) = rehearsed("co2l", (0, 1), (2, 3), buffer_per_class=1)
    # In the memory one image of each old class (and of new ones, already), six new ones of each.
    torch.manual_seed(0)
    drawn = torch.cat([batch.labels for _ in range(30) for batch in method.balanced(task)])
    counts = drawn.bincount().float()
    assert len(drawn) == 30 * 16
    assert (counts / counts.sum() - 0.25).abs().max() < 0.05
    with torch.no_grad():
        known = torch.cat(
            [method.features(task.see(images)) for images in (task.pixels, method.memory.images)]
        )
    labels = torch.cat((task.labels, method.memory.labels))
    for batch in method.balanced(task):
        assert not batch.inputs.requires_grad
        nearest = torch.cdist(batch.inputs, known).argmin(1)
        close(known[nearest], batch.inputs, rtol=1e-4, atol=1e-4)
        assert torch.equal(labels[nearest], batch.labels)
    classify = method.phases(task)[1]
    assert {id(p) for p in classify.groups[0].params} == {id(p) for p in method.head.parameters()}
    batch = classify.draw()[0]
    expected = F.cross_entropy(method.head(batch.inputs), batch.labels)
    close(classify.step(batch)["ce"], expected)


def test_contrastive_training_leaves_the_head_alone_and_the_classifier_starts_anew() -> None:
    method, (task,) = rehearsed("co2l", (0, 1))
    trained = {id(p) for group in method.phases(task)[0].groups for p in group.params}
    assert trained == {id(p) for p in (*method.vit.parameters(), *method.projector.parameters())}
    before = method.head.weight.detach().clone()
    method.begin_task(Task(1, (2,)))
    assert method.head.weight.shape == (3, 16)
    assert not torch.equal(method.head.weight[:2], before)


def test_random_images_of_each_class_and_domain_are_kept() -> None:
    method, _ = rehearsed("co2l", (0, 1), (0, 1), buffer_per_class=4)
    cells = list(zip(method.memory.labels.tolist(), method.memory.tasks.tolist(), strict=True))
    assert {cell: cells.count(cell) for cell in cells} == {
        (c, t): 2 for c in (0, 1) for t in (0, 1)
    }
