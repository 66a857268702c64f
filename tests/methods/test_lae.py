"""LAE: three kinds of tuning, the slow copy, the head that trains first, the surer answer."""

import math
from typing import Any

import pytest
import torch
from fakes import DIM, Task, learn, small_backbone, train_step
from torch import Tensor

from hashprompt.engine.optimization import make_optimizer
from hashprompt.methods.base import Batch
from hashprompt.methods.lae.method import Lae, LaeConfig, Values

close = torch.testing.assert_close
KINDS = ("adapter", "lora", "prefix")


def make(pet: str = "adapter", **options: Any) -> Lae:
    torch.manual_seed(0)
    small = {"layers": (1, 2), "adapter_width": 3, "rank": 3, "prompt_length": 4, "lr": 1.0}
    return Lae(LaeConfig(**{**small, "pet": pet, **options}), small_backbone())


def begun(pet: str = "adapter", **options: Any) -> tuple[Lae, Task]:
    """In the second task, with random values."""
    method = make(pet, **options)
    learn(method, Task(0, (0, 1)))
    for parameter in method.online.parameters():
        parameter.data.uniform_(-1, 1)
    task = Task(1, (2, 3, 4))
    method.begin_task(task)
    return method, task


def steps(method: Lae, task: Task, phase: str, count: int) -> list[dict[str, Tensor]]:
    """Steps of a phase; the online values after each."""
    chosen = next(p for p in method.phases(task) if p.name == phase)
    optimizer, seen = make_optimizer(chosen), []
    for _ in range(count):
        train_step(chosen, Batch(task.images, task.labels), optimizer)
        seen.append({name: v.detach().clone() for name, v in method.online.items()})
    return seen


# What is tuned. ----------------------------------------------------------------------------


def slow_attention(block: Any, z: Tensor, values: Values, place: int, pet: str) -> Tensor:
    """Attention of one image (N, D), head by head, with what is tuned written out."""
    weight, bias = block.attn.qkv.weight.clone(), block.attn.qkv.bias
    if pet == "lora":
        for part in (0, 1):  # keys, values
            delta = values["b"][place, part] @ values["a"][place, part]
            weight[DIM * (part + 1) : DIM * (part + 2)] += values["scale"][place, part] * delta
    q, k, v = (z @ weight.T + bias).split(DIM, dim=-1)
    if pet == "prefix":
        prefix = values["scale"][place][:, None, None] * values["prefix"][place]
        k, v = torch.cat((prefix[0], k)), torch.cat((prefix[1], v))
    heads = []
    for h in range(2):
        part = slice(h * DIM // 2, (h + 1) * DIM // 2)
        attention = (q[:, part] @ k[:, part].T / (DIM // 2) ** 0.5).softmax(-1)
        if pet == "prefix":
            to_prefix, to_own = attention[:, :4], attention[:, 4:]
            attention = torch.cat((to_prefix / to_prefix.sum(1, keepdim=True), to_own), dim=1)
        heads.append(attention @ v[:, part])
    out = block.attn.proj(torch.cat(heads, dim=1))
    if pet == "adapter":
        down, up = values["down"][place], values["up"][place]
        hidden = z @ down[:-1] + down[-1]
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        out = out + values["scale"][place] * (hidden @ up[:-1] + up[-1])
    return out


@torch.no_grad()
def slow_features(method: Lae, images: Tensor, values: Values) -> Tensor:
    vit: Any = method.backbone.vit
    features = []
    for x in vit._pos_embed(vit.patch_embed(images)):
        for place, block in enumerate(vit.blocks):
            x = x + slow_attention(block, block.norm1(x), values, place, method.config.pet)
            x = x + block.mlp(block.norm2(x))
        features.append(vit.norm(x)[0])
    return torch.stack(features)


@pytest.mark.parametrize("pet", KINDS)
def test_features_are_those_of_attention_written_out(pet: str) -> None:
    method, task = begun(pet)
    values = {name: torch.randn_like(value) for name, value in method.online.items()}
    expected = slow_features(method, task.images[:4], values)
    with torch.no_grad():
        found = method.features(task.images[:4], values)
        close(found, expected, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(found, method.backbone(task.images[:4]), atol=1e-2)


@pytest.mark.parametrize("pet", ["adapter", "lora"])
def test_what_is_tuned_adds_nothing_at_its_start(pet: str) -> None:
    method, images = make(pet), Task(0, (0, 1)).images
    with torch.no_grad():
        found = method.features(images, method.online)
        close(found, method.backbone(images), atol=1e-5, rtol=1e-5)


def test_only_the_blocks_of_choice_are_tuned() -> None:
    method = make(layers=(2,))
    values = {name: torch.randn_like(value) for name, value in method.online.items()}
    assert list(method.inject(values, 1).edits) == ["blocks.1.attn"]


# The slow copy. ----------------------------------------------------------------------------


@pytest.mark.parametrize("pet", KINDS)
def test_the_copy_is_a_moving_average_of_the_values_after_each_step(pet: str) -> None:
    method, task = begun(pet, ema_decay=0.9)
    start = {name: value.clone() for name, value in method.offline.tensors().items()}
    seen = steps(method, task, "train", 3)
    for name, value in start.items():
        x1, x2, x3 = (values[name] for values in seen)
        assert not torch.equal(x1, value)
        by_hand = 0.729 * value + 0.081 * x1 + 0.09 * x2 + 0.1 * x3
        close(method.offline.tensors()[name], by_hand, atol=1e-5, rtol=1e-5)


def test_while_the_head_trains_the_values_rest_and_the_copy_follows() -> None:
    method, task = begun(ema_decay=0.9)
    online = {name: value.detach().clone() for name, value in method.online.items()}
    head = method.head.weight.detach().clone()
    steps(method, task, "head", 2)
    assert not torch.equal(method.head.weight, head)
    for name, value in online.items():
        assert torch.equal(method.online[name], value)
        assert torch.equal(method.offline.tensors()[name], value)  # as they were equal before
    apart = {name: value + 1 for name, value in online.items()}
    method.offline.take(apart)
    steps(method, task, "head", 2)
    for name, value in online.items():
        close(method.offline.tensors()[name], value + 0.81, atol=1e-5, rtol=1e-5)


def test_the_copy_is_made_once_at_the_second_task() -> None:
    method = make()
    first = Task(0, (0, 1))
    learn(method, first)
    assert not method.offline.taken
    values = {name: value.detach().clone() for name, value in method.online.items()}
    method.begin_task(Task(1, (2, 3)))
    assert all(torch.equal(method.offline.tensors()[name], v) for name, v in values.items())
    for parameter in method.online.parameters():
        parameter.data.uniform_(-1, 1)
    method.begin_task(Task(2, (4, 5)))
    assert all(torch.equal(method.offline.tensors()[name], v) for name, v in values.items())


# Training. ---------------------------------------------------------------------------------


def test_the_first_task_trains_all_at_once_and_later_ones_the_head_first() -> None:
    method = make(head_epochs=3, epochs=2)
    tasks = [Task(0, (0, 1)), Task(1, (2, 3))]
    online, found = set(method.online.parameters()), []
    for task in tasks:
        method.begin_task(task)
        head = set(method.head.parameters())
        for phase in method.phases(task):
            trained = {p for group in phase.groups for p in group.params}
            what = {frozenset(head): "head", frozenset(head | online): "all"}[frozenset(trained)]
            found.append((task.index, phase.name, what, phase.epochs, phase.update is not None))
    assert found == [
        (0, "train", "all", 5, False),
        (1, "head", "head", 3, True),
        (1, "train", "all", 2, True),
    ]


# Answers. ----------------------------------------------------------------------------------


def probabilities(method: Lae, images: Tensor, values: Values) -> list[list[float]]:
    with torch.no_grad():
        logits = slow_features(method, images, values) @ method.head.weight.T + method.head.bias
    rows = [[math.exp(x) for x in row] for row in logits.tolist()]
    return [[x / sum(row) for x in row] for row in rows]


@pytest.mark.parametrize("pet", KINDS)
def test_the_surer_of_both_answers(pet: str) -> None:
    method, task = begun(pet)
    apart = {name: torch.randn_like(value) for name, value in method.online.items()}
    method.offline.take(apart)
    method.head.weight.data.normal_()
    images = task.images[:6]
    online = probabilities(method, images, method.online)
    offline = probabilities(method, images, apart)
    with torch.no_grad():
        found = method.predict(images).logits.exp().tolist()
    surer = set()
    for row, one, other in zip(found, online, offline, strict=True):
        for p, p_on, p_off in zip(row, one, other, strict=True):
            assert p == pytest.approx(max(p_on, p_off), abs=1e-4)
            surer.add(p_on > p_off)
    assert surer == {True, False}


def test_after_the_first_task_only_the_online_values_answer() -> None:
    method, task = make(), Task(0, (0, 1, 2))
    learn(method, task)
    with torch.no_grad():
        found = method.predict(task.images).logits.exp()
    expected = probabilities(method, task.images, method.online)
    close(found, torch.tensor(expected), atol=1e-4, rtol=1e-4)
