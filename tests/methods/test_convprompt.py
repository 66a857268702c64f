"""ConvPrompt against convolutions and sums written out."""

from functools import partial
from typing import Any

import pytest
import torch
from fakes import DIM, Task, small_backbone, train
from torch import Tensor

from hashprompt.backbone import Injection
from hashprompt.methods.base import Batch
from hashprompt.methods.convprompt.method import ConvPrompt, ConvPromptConfig, convolved

close = torch.testing.assert_close
HEADS, HEAD_DIM = 2, DIM // 2


def make(**options: Any) -> ConvPrompt:
    defaults = {"layers": (1, 2, 4), "prompts_per_task": 2, "prompt_length": 3, "kernel_size": 3}
    return ConvPrompt(ConvPromptConfig(**{**defaults, **options}), small_backbone(4, lively=False))


@torch.enable_grad()
def learned(tasks: int = 2, **options: Any) -> ConvPrompt:
    method = make(**options)
    for index in range(tasks):
        task = Task(index, (2 * index, 2 * index + 1))
        method.begin_task(task)
        train(method, task)
    return method


def slow_convolution(image: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    k = len(kernel)
    rows, columns = image.shape[0] - k + 1, image.shape[1] - k + 1
    out = torch.empty(rows, columns)
    for r in range(rows):
        for c in range(columns):
            total = float(bias)
            for i in range(k):
                for j in range(k):
                    total += float(image[r + i, c + j] * kernel[i, j])
            out[r, c] = total
    return out


def slow_prompt(method: ConvPrompt, place: int, cls: Tensor) -> Tensor:
    """(2, L, D) for one image, by head, task and kernel."""
    keys = method.keys.stacked()[:, 0]  # (T, J, D/4)
    query = method.projection(cls)
    prompt = torch.zeros(2, 3, DIM)
    for t in range(len(keys)):
        for j in range(2):
            key = keys[t, j]
            weight = float(query @ key / (query.norm() * key.norm()))
            for kv in range(2):
                for head in range(HEADS):
                    kernel = method.kernels.stacked()[t, place, kv, head, j]
                    bias = method.biases.stacked()[t, place, kv, head, j]
                    made = slow_convolution(method.shared[place, kv, head], kernel, bias)
                    own = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
                    prompt[kv, :, own] += weight * made
    return prompt


# Prompts. ------------------------------------------------------------------------------------


def test_a_prompt_by_hand() -> None:
    shared = torch.zeros(2, 1, 2, 3)
    shared[0, 0] = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    kernels = torch.zeros(1, 2, 1, 1, 2, 2)
    kernels[0, 0, 0, 0] = torch.tensor([[1.0, 0.0], [0.0, 10.0]])
    biases = torch.tensor([0.5, -1.0]).view(1, 2, 1, 1)
    found = convolved(shared, kernels, biases)
    assert found.shape == (1, 2, 1, 2)
    assert found[0, 0].tolist() == [[51.5, 62.5]]
    assert found[0, 1].tolist() == [[-1.0, -1.0]]


@torch.no_grad()
def test_prompts_are_weighted_convolutions_and_that_of_the_block_before() -> None:
    method = learned(2)
    prefix: Any = method.prompt(torch.zeros(2, 5, DIM), torch.empty(2, 0), False).inject.prefix
    assert list(prefix) == [0, 1, 3]
    entering = [torch.randn(2, 5, DIM) for _ in range(3)]
    found = [prefix[block](x) for block, x in zip((0, 1, 3), entering, strict=True)]
    for image in range(2):
        own = [slow_prompt(method, place, x[image, 0]) for place, x in enumerate(entering)]
        close(found[0][image], own[0], rtol=1e-4, atol=1e-4)
        close(found[1][image], own[1] + own[0], rtol=1e-4, atol=1e-4)
        close(found[2][image], own[2] + own[1], rtol=1e-4, atol=1e-4)  # not those before


@torch.no_grad()
def test_the_class_token_of_the_prompted_pass_asks_for_the_prompt() -> None:
    """The query is what enters the block, so there is no plain pass."""
    method, task = learned(1), Task(0, (0, 1))
    backbone = method.backbone
    backbone.passes.clear()
    found = method.predict(task.images).logits
    assert dict(backbone.passes) == {"prompted": 12}
    entered: list[Tensor] = []
    inject: Any = method.prompt(task.images, torch.empty(12, 0), False).inject

    def watched(x: Tensor, place: int, block: int) -> Tensor:
        entered.append(x)
        prefix = inject.prefix[block](x)
        own = slow_prompt(method, place, x[0, 0])
        before = slow_prompt(method, place - 1, entered[-2][0, 0]) if place else 0
        close(prefix[0], own + before, rtol=1e-3, atol=1e-3)
        return prefix

    spies = {b: partial(watched, place=i, block=b) for i, b in enumerate(inject.prefix)}
    features = backbone(task.images, Injection(prefix=spies))
    assert len(entered) == 3
    close(method.head(features), found, rtol=1e-4, atol=1e-5)


# Learning. -----------------------------------------------------------------------------------


def test_the_first_task_is_free_and_later_ones_hold_what_is_shared() -> None:
    method = make(stability=0.3)
    for index in range(2):
        task = Task(index, (2 * index, 2 * index + 1))
        method.begin_task(task)
        step = method.phases(task)[0].step
        assert step is not None
        losses: Any = step(Batch(task.images, task.labels))
        assert set(losses) == ({"ce"} if index == 0 else {"ce", "stability"})
        before = {name: value.detach().clone() for name, value in method.common().items()}
        train(method, task)
    losses = step(Batch(task.images, task.labels))
    expected = 0.0
    for name, value in method.common().items():
        now, then = value.flatten().tolist(), before[name].flatten().tolist()
        expected += 0.3 * sum(abs(a - b) for a, b in zip(now, then, strict=True))
    assert float(losses["stability"].detach()) == pytest.approx(expected, rel=1e-4)
    assert expected > 0.1


def test_all_of_a_task_trains() -> None:
    method, task = make(), Task(0, (0, 1))
    method.begin_task(task)
    before = {name: value.detach().clone() for name, value in method.named_parameters()}
    train(method, task)
    stayed = [name for name, value in method.named_parameters() if torch.equal(value, before[name])]
    assert stayed == []  # keys too


def test_new_keys_start_orthogonal_to_the_learned_ones() -> None:
    method = learned(1, prompts_per_task=1)
    method.begin_task(Task(1, (2, 3)))
    keys = method.keys.joined()[0].detach()  # (2, D/4)
    assert keys.shape == (2, DIM // 4)
    assert abs(float(keys[0] @ keys[1])) < 1e-5
    assert float(keys[1].norm()) == pytest.approx(1)
