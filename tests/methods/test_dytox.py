"""DyTox against timm's own blocks and losses written out image by image."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from fakes import DEPTH, DIM, Task, small_backbone, step_losses, train_step
from torch import Tensor

from hashprompt.engine.optimization import make_optimizer
from hashprompt.methods.base import Batch, Phase
from hashprompt.methods.dytox.config import DyToxConfig
from hashprompt.methods.dytox.method import DyTox

close = torch.testing.assert_close


def make(**options: Any) -> DyTox:
    defaults = {"batch_size": 256, "lr": 0.01, "finetuning_lr": 0.01, "buffer_per_class": 2}
    options = {"keep_cls": False, **options}
    return DyTox(DyToxConfig(**{**defaults, **options}), small_backbone())


def take_phase(phase: Phase, task: Task, steps: int = 2) -> None:
    if phase.work is not None:
        phase.work()
        return
    optimizer = make_optimizer(phase)
    for _ in range(steps):
        for batch in phase.draw() if phase.draw else [Batch(task.images, task.labels)]:
            train_step(phase, batch, optimizer)


def taught(*tasks: Task, **options: Any) -> DyTox:
    method = make(**options)
    for task in tasks:
        method.begin_task(task)
        for phase in method.phases(task):
            take_phase(phase, task)
    return method


def begun(*classes: tuple[int, ...]) -> tuple[DyTox, Task]:
    """A learner of all tasks but the last, which has begun; its newest parts are not at zero."""
    tasks = [Task(index, own) for index, own in enumerate(classes)]
    method = taught(*tasks[:-1])
    method.begin_task(tasks[-1])
    for parameter in (
        method.tokens,
        method.norm_scale,
        method.norm_shift,
        method.divergence.weight,
    ):
        parameter.data.add_(torch.randn_like(parameter) / 2)
    for parameter in method.head.parameters():
        parameter.data.add_(torch.randn_like(parameter) / 2)
    return method, tasks[-1]


def slow_embedding(method: DyTox, image: Tensor, network: dict[str, Tensor], task: int) -> Tensor:
    """timm's blocks one after the other; before the last the token joins CLS, or replaces it."""
    vit = copy.deepcopy(method.backbone.vit)
    for name in method.vit.names:
        vit.get_parameter(name).data = network[name].detach()
    x = vit._pos_embed(vit.patch_embed(image[None]))
    for block in vit.blocks[:-1]:
        x = block(x)
    kept = x[:, :1] if method.config.keep_cls else 0
    x = torch.cat((network["tokens"][task].detach()[None, None] + kept, x[:, 1:]), dim=1)
    return vit.blocks[-1](x)[0, 0]


def slow_cells(method: DyTox, image: Tensor, network: dict[str, Tensor]) -> list[float]:
    """The logit of each cell of the network."""
    found = []
    for row in range(len(network["head.bias"])):
        task = int(method.cells.task[row])
        seen = slow_embedding(method, image, network, task)
        unit = (seen - seen.mean()) / (seen.var(correction=0) + 1e-5).sqrt()
        normed = unit * network["norm_scale"][task] + network["norm_shift"][task]
        found.append(
            float((normed @ network["head.weight"][row] + network["head.bias"][row]).detach())
        )
    return found


def slow_bce(logits: list[float], positive: int) -> float:
    total = 0.0
    for place, logit in enumerate(logits):
        probability = 1 / (1 + math.exp(-logit))
        total -= math.log(probability if place == positive else 1 - probability)
    return total / len(logits)


def slow_kd(found: list[float], wanted: list[float]) -> float:
    p, q = ([math.exp(v) for v in logits] for logits in (found, wanted))
    p, q = [v / sum(p) for v in p], [v / sum(q) for v in q]
    return sum(b * math.log(b / a) for a, b in zip(p, q, strict=True)) / len(p)


# The network. --------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_cls", [False, True])
def test_embeddings_are_what_the_last_block_says_to_each_token(keep_cls: bool) -> None:
    method, task = begun((0, 1), (2, 3, 4))
    method.config = method.config.model_copy(update={"keep_cls": keep_cls})
    network = method.network()
    found = method.embeddings(task.images[:3], network)
    assert found.shape == (3, 2, DIM)
    for image in range(3):
        for t in range(2):
            expected = slow_embedding(method, task.images[image], network, t)
            close(found[image, t], expected, rtol=1e-4, atol=1e-5)
    assert (found[:, 0] - found[:, 1]).abs().max() > 0.01


def test_each_head_reads_the_embedding_of_its_task() -> None:
    method, task = begun((0, 1), (2, 3, 4))
    found = method.logits(task.images[:2])
    assert found.shape == (2, 5)
    for image in range(2):
        expected = slow_cells(method, task.images[image], method.network())
        close(found[image], torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_the_best_domain_speaks_for_a_class() -> None:
    method, task = begun((0, 1, 2), (1, 0, 2), (0, 1, 2))
    found = method.predict(task.images[:3]).logits
    orders = ((0, 1, 2), (1, 0, 2), (0, 1, 2))
    for image in range(3):
        cells = slow_cells(method, task.images[image], method.network())
        for label in range(3):
            own = [cells[3 * t + order.index(label)] for t, order in enumerate(orders)]
            assert float(found[image, label].detach()) == pytest.approx(
                max(own), rel=1e-3, abs=1e-4
            )


def test_the_encoder_runs_once_however_many_tokens_there_are() -> None:
    method, task = begun((0, 1), (2, 3), (4, 5))
    method.backbone.passes.clear()
    with torch.no_grad():
        method.predict(task.images)
    assert dict(method.backbone.passes) == {"whole": len(task.images)}


@torch.no_grad()
def test_with_a_token_of_zeros_it_is_the_vit_itself() -> None:
    method, task = make(keep_cls=True), Task(0, (0, 1))
    method.begin_task(task)
    method.tokens.data.zero_()
    found = method.embeddings(task.images, method.network())[:, 0]
    close(method.backbone.vit.norm(found), method.backbone(task.images), rtol=1e-4, atol=1e-5)


# Losses. -------------------------------------------------------------------------------------


def test_the_first_task_has_binary_cross_entropy_alone() -> None:
    method, task = begun((0, 1, 2))
    losses = step_losses(method, task)
    expected = [
        slow_bce(slow_cells(method, image, method.network()), int(label))
        for image, label in zip(task.images, task.labels, strict=True)
    ]
    assert set(losses) == {"bce"}
    assert float(losses["bce"].detach()) == pytest.approx(np.mean(expected), rel=1e-4)
    assert [phase.name for phase in method.phases(task)] == ["train", "memory"]


@pytest.mark.parametrize("classes", [((0, 1), (2, 3, 4)), ((0, 1, 2), (2, 0, 1))])
def test_all_losses_by_hand(classes: tuple[tuple[int, ...], ...]) -> None:
    """New classes, and the same classes in a new domain."""
    method, task = begun(*classes)
    teacher, network = method.teacher.tensors(), method.network()
    torch.manual_seed(5)
    losses = step_losses(method, task)
    torch.manual_seed(5)
    kept = method.memory.draw(100)  # the same draw again
    old, bce, kd, div = len(classes[0]), [], [], []
    assert len(kept.labels) == 2 * old
    is_new = [True] * len(task.labels) + [False] * len(kept.labels)
    images, labels = (
        torch.cat((task.images, task.see(kept.images))),
        torch.cat((task.labels, kept.labels)),
    )
    norm = method.divergence_norm
    for image, label, new in zip(images, labels.tolist(), is_new, strict=True):
        cells = slow_cells(method, image, network)
        best = [
            max(logit for logit, own in zip(cells, sum(classes, ()), strict=True) if own == c)
            for c in range(max(sum(classes, ())) + 1)
        ]
        bce.append(slow_bce(best, label))
        kd.append(slow_kd(cells[:old], slow_cells(method, image, teacher)))
        seen = norm(slow_embedding(method, image, network, 1))
        diverse = (method.divergence.weight @ seen + method.divergence.bias).tolist()
        div.append(slow_bce(diverse, 1 + classes[1].index(label) if new else 0))
    share = old / (old + len(classes[1]))
    values = {name: float(loss.detach()) for name, loss in losses.items()}
    assert values["bce"] == pytest.approx((1 - share) * np.mean(bce), rel=1e-3)
    assert values["kd"] == pytest.approx(share * np.mean(kd), rel=1e-3)
    assert values["divergence"] == pytest.approx(0.1 * np.mean(div), rel=1e-3)
    assert values["kd"] > 1e-4


# What trains when. ---------------------------------------------------------------------------


def state(method: DyTox) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in method.network().items()}


def test_finetuning_trains_all_but_the_encoder() -> None:
    method, task = begun((0, 1), (2, 3, 4))
    train, memory, finetune = method.phases(task)
    assert (train.name, memory.name, finetune.name) == ("train", "memory", "finetune")
    take_phase(memory, task)
    before = state(method)
    method.zero_grad()
    take_phase(finetune, task)
    after = state(method)
    last = f"blocks.{DEPTH - 1}."
    for name, value in method.vit.tensors().items():
        moved = not torch.equal(after[name], before[name])
        assert moved == name.startswith(last), name
        assert (value.grad is not None) == moved  # no gradient is computed in vain
    for name in ("tokens", "norm_scale", "norm_shift", "head.weight", "head.bias"):
        assert (after[name] != before[name]).flatten(1 if after[name].ndim > 1 else 0).any()
        assert (after[name][:1] != before[name][:1]).any()  # old ones too


def test_the_loss_of_finetuning_by_hand() -> None:
    method, task = begun((0, 1), (2, 3))
    take_phase(method.phases(task)[1], task)
    finetune = method.phases(task)[2]
    assert finetune.step is not None
    rows = torch.tensor([0, 5, 3])
    losses: Any = finetune.step(Batch(rows, method.memory.labels[rows]))
    images = task.see(method.memory.images[rows])
    expected = [
        slow_bce(slow_cells(method, image, method.network()), int(label))
        for image, label in zip(images, method.memory.labels[rows], strict=True)
    ]
    assert set(losses) == {"bce"}
    assert float(losses["bce"].detach()) == pytest.approx(np.mean(expected), rel=1e-4)


def test_finetuning_has_its_own_rate_and_sees_each_kept_image_once_an_epoch() -> None:
    method, task = begun((0, 1), (2, 3))
    take_phase(method.phases(task)[1], task)
    method.config = DyToxConfig(batch_size=3, lr=0.1, finetuning_lr=0.02, head_lr_scale=5)
    finetune = method.phases(task)[2]
    assert [group.lr for group in finetune.groups] == pytest.approx([0.06 / 256, 0.3 / 256])
    assert finetune.draw is not None
    batches = finetune.draw()
    assert [len(batch.labels) for batch in batches] == [3, 3, 2]
    rows = torch.cat([batch.inputs for batch in batches])
    assert sorted(rows.tolist()) == list(range(8))
    assert torch.equal(torch.cat([b.labels for b in batches]), method.memory.labels[rows])


# Memory. -------------------------------------------------------------------------------------


def test_images_are_kept_by_herding_on_the_embeddings_of_all_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method, task = begun((0, 1), (2, 3))
    herded: list[Tensor] = []
    order = torch.tensor([5, 0, 3, 2, 1, 4])

    def herding(features: Tensor, labels: Tensor) -> Tensor:
        herded.extend((features, labels))
        return order

    monkeypatch.setattr("hashprompt.methods.dytox.method.herding_order", herding)
    take_phase(method.phases(task)[1], task)
    network = method.network()
    expected = [
        torch.cat([slow_embedding(method, image, network, t) for t in (0, 1)])
        for image in task.images
    ]
    close(herded[0], torch.stack(expected), rtol=1e-4, atol=1e-5)
    assert torch.equal(herded[1], task.labels)
    # Labels are 2, 3, 2, 3, 2, 3: the first two of each class in that order.
    new = method.memory.images[method.memory.tasks == 1]
    assert torch.equal(new, task.pixels[[5, 0, 3, 2]])
    assert method.memory.labels.bincount().tolist() == [2, 2, 2, 2]
    assert method.images_stored() == 8


# State. --------------------------------------------------------------------------------------
