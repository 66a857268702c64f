"""SMoPE against loops over images, heads and experts."""

import math
from typing import Any

import pytest
import torch
from fakes import DIM, Task, small_backbone, train
from torch import Tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.smope.method import (
    Choice,
    Smope,
    SmopeConfig,
    Use,
    prototype_loss,
    router_loss,
)

close = torch.testing.assert_close
HEADS, WIDTH = 2, DIM // 2


def make_smope(**options: Any) -> Smope:
    # Block 4 is the last one, where other methods look at the class token alone.
    defaults = {"layers": (1, 4), "experts": 5, "top_k": 2, "epochs": 2, "batch_size": 4}
    torch.manual_seed(3)
    return Smope(SmopeConfig(**{**defaults, **options}), small_backbone(4))


def learn(method: Smope, task: Task) -> None:
    method.begin_task(task)
    for phase in method.phases(task):
        phase.work() if phase.work else train(method, task, phase.name)


def second_task(**options: Any) -> tuple[Smope, Task]:
    """A learner at the beginning of its second task."""
    method = make_smope(**options)
    learn(method, Task(0, (0, 1)))
    task = Task(1, (2, 3))
    method.begin_task(task)
    return method, task


# The sparse attention. -----------------------------------------------------------------------


def choices_of(method: Smope, images: Tensor, use: Use) -> list[Choice]:
    choices: list[Choice] = []
    tokens = method.backbone.embed(images)
    method.backbone.encode(tokens, method._inject(len(tokens), use, choices))
    return choices


def best(scores: list[float], count: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda e: -scores[e])[:count]


def slow_block(block: Any, x: Tensor, prompt: Tensor, back: Tensor, k: int) -> tuple[Tensor, Any]:
    """A block for one image (N, D): attention head by head, expert by expert.

    `back` (H, E) is what holds experts back; k = 0 uses all of them. Also the raw scores by head.
    """
    y = block.norm1(x)
    q, keys, values = block.attn.qkv(y).chunk(3, dim=-1)
    out, seen = [], []
    for h in range(HEADS):
        own = slice(h * WIDTH, (h + 1) * WIDTH)
        mean_query = q[:, own].mean(0)
        raw = [float(mean_query @ prompt[0, e, own]) for e in range(prompt.shape[1])]
        span = max(raw) - min(raw)
        held = [s - float(b) * span for s, b in zip(raw, back[h], strict=True)]
        chosen = best(held, k) if k else range(len(raw))
        rows = []
        for token in range(len(x)):
            logits = [raw[e] for e in chosen]
            logits += [float(q[token, own] @ key) for key in keys[:, own]]
            weights = torch.tensor([s / math.sqrt(WIDTH) for s in logits]).softmax(0)
            rows.append(
                weights @ torch.stack([*(prompt[1, e, own] for e in chosen), *values[:, own]])
            )
        out.append(torch.stack(rows))
        seen.append((raw, list(chosen)))
    x = x + block.attn.proj(torch.cat(out, dim=-1))
    return x + block.mlp(block.norm2(x)), seen


@torch.no_grad()
def slow_features(method: Smope, image: Tensor, back: Tensor, k: int) -> tuple[Tensor, list[Any]]:
    """The feature of an image, and what the heads of each prompted block saw."""
    vit, seen = method.backbone.vit, []
    x = vit._pos_embed(vit.patch_embed(image[None]))
    for index, block in enumerate(vit.blocks):
        if index in method.blocks:
            position = method.blocks.index(index)
            new, heads = slow_block(block, x[0], method.prompts[position], back[position], k)
            x = new[None]
            seen.append(heads)
        else:
            x = block(x)
    return vit.norm(x)[0, 0], seen


@pytest.mark.parametrize("use", ["all", "train", "test"])
def test_features_are_those_of_attention_written_out(use: Any) -> None:
    method, task = second_task(noise=0.7)
    generator = torch.Generator().manual_seed(2)
    method.frequent = torch.rand(method.frequent.shape, generator=generator) < 0.5
    method.counts = torch.randint(0, 3, method.counts.shape, generator=generator)
    tokens = method.backbone.embed(task.images)
    inject = method._inject(len(tokens), use, [])
    found = method.features(tokens, inject)
    back = 0.7 * method.frequent if use == "train" else 2.0 * (method.counts == 0)
    for image, feature in zip(task.images, found, strict=True):
        expected, _ = slow_features(method, image, back, 0 if use == "all" else 2)
        close(feature.detach(), expected, rtol=1e-4, atol=1e-5)
    # The three ways do differ.
    other = method._inject(len(tokens), "train" if use == "all" else "all", [])
    assert (method.features(tokens, other) - found).abs().max() > 1e-3


def test_experts_that_no_task_used_are_not_used_at_test() -> None:
    method, task = second_task()
    method.counts = torch.ones_like(method.counts)
    method.counts[:, :, :3] = 0  # two are left, as many as an image uses
    for choice in choices_of(method, task.images, "test"):
        assert set(choice.chosen.flatten().tolist()) == {3, 4}


# Usage. --------------------------------------------------------------------------------------


def test_usage_counts_the_best_experts_of_every_image() -> None:
    method = make_smope()
    task = Task(0, (0, 1))
    method.begin_task(task)
    expected = torch.zeros_like(method.counts)
    nothing = torch.zeros_like(method.counts)
    for image in task.images:
        _, blocks = slow_features(method, image, nothing, 2)
        for position, heads in enumerate(blocks):
            for head, (raw, _) in enumerate(heads):
                for expert in best(raw, 2):
                    expected[position, head, expert] += 1
    method._count(task)
    assert torch.equal(method.counts, expected)
    assert task.views == ["train"]
    method._count(task)
    assert (method.counts >= expected).all()
    assert method.counts.sum() == 2 * expected.sum()  # they add up


def test_frequent_is_what_ever_reached_the_mean_of_the_used() -> None:
    method = make_smope()
    method.begin_task(Task(0, (0, 1)))
    assert not method.frequent.any()
    method.counts[0, 0] = torch.tensor([0, 4, 5, 0, 6])  # the mean of three is 5
    method.begin_task(Task(1, (2, 3)))
    assert method.frequent[0, 0].tolist() == [False, False, True, False, True]
    method.counts[0, 0] = torch.tensor([90, 4, 5, 0, 6])
    method.begin_task(Task(2, (4, 5)))
    assert method.frequent[0, 0].tolist() == [True, False, True, False, True]


# Losses. -------------------------------------------------------------------------------------


def slow_entropy(scores: list[float], target: int) -> float:
    return math.log(sum(math.exp(s) for s in scores)) - scores[target]


def test_router_loss_by_loops() -> None:
    scores = 3 * torch.randn(4, HEADS, 5)
    chosen = torch.stack([torch.randperm(5)[:2] for _ in range(8)]).view(4, HEADS, 2)
    expected = 0.0
    for image, picked in zip(scores.tolist(), chosen.tolist(), strict=True):
        for raw, own in zip(image, picked, strict=True):
            lift = 0.4 * (max(raw) - min(raw))
            raised = [s if e in own else s + lift for e, s in enumerate(raw)]
            expected += sum(slow_entropy(raised, e) for e in own) / 4
    assert float(router_loss(scores, chosen, 0.4)) == pytest.approx(expected, rel=1e-5)


def test_prototype_loss_by_loops() -> None:
    keys, old = torch.randn(2, 2, HEADS, 5, 3).unbind(0)
    frequent = torch.rand(2, HEADS, 5) < 0.6
    frequent[1, 1] = False  # a head without any adds nothing
    expected = 0.0
    for block in range(2):
        for head in range(HEADS):
            asked = [e for e in range(5) if frequent[block, head, e]]
            for e in asked:
                before = [float(old[block, head, e] @ k) for k in old[block, head]]
                now = [float(old[block, head, e] @ k) for k in keys[block, head]]
                expected += sum(slow_entropy(now, i) for i in best(before, 2)) / len(asked)
    assert float(prototype_loss(keys, old, frequent, 2)) == pytest.approx(expected, rel=1e-5)


def test_a_step_weighs_its_losses_and_looks_at_the_tasks_own_classes() -> None:
    method, task = second_task(noise=0.3, router_weight=0.1, prototype_weight=0.2)
    with torch.no_grad():
        losses = method._step(Batch(task.images, task.labels), task)
    assert losses.keys() == {"ce", "router", "prototypes"}
    ce, router = 0.0, 0.0
    for image, label in zip(task.images, task.labels.tolist(), strict=True):
        feature, blocks = slow_features(method, image, 0.3 * method.frequent, 2)
        ce += slow_entropy(method.head(feature)[2:].tolist(), label - 2) / len(task.images)
        for heads in blocks:
            for raw, chosen in heads:
                pair = torch.tensor(raw)[None, None], torch.tensor(chosen)[None, None]
                router += float(router_loss(*pair, 0.3)) / len(task.images)
    assert float(losses["ce"]) == pytest.approx(ce, rel=1e-4)
    assert float(losses["router"]) == pytest.approx(0.1 * router, rel=1e-4)
    keys = method.prompts[:, 0].view(2, 5, HEADS, WIDTH).permute(0, 2, 1, 3)
    prototypes = prototype_loss(keys.detach(), method.old_keys, method.frequent, 2)
    assert float(losses["prototypes"]) == pytest.approx(0.2 * float(prototypes), rel=1e-5)
    assert torch.equal(method.old_keys, keys)  # nothing has moved yet


def test_chosen_experts_learn_and_others_do_not() -> None:
    method, task = second_task(router_weight=0, prototype_weight=0)
    method.zero_grad()
    method._step(Batch(task.images, task.labels), task)["ce"].backward()
    gradient = method.prompts.grad
    assert gradient is not None
    for position, choice in enumerate(choices_of(method, task.images, "train")):
        for head in range(HEADS):
            used = set(choice.chosen[:, head].flatten().tolist())
            own = gradient[position, :, :, head * WIDTH : (head + 1) * WIDTH].abs().amax(-1)
            moved = {e for e in range(5) if own[:, e].max() > 0}
            assert moved == used


# Stages. -------------------------------------------------------------------------------------


def test_stages_of_the_first_and_of_later_tasks() -> None:
    method, task = second_task(epochs=5, align_samples=7)
    first = method.phases(Task(0, (0, 1)))
    assert [p.name for p in first] == ["warm-up", "train", "usage", "statistics"]
    assert [p.epochs for p in first][:2] == [2, 5]
    later = method.phases(task)
    assert [p.name for p in later] == ["train", "usage", "statistics", "align"]
    for phase in later[1:3]:
        assert phase.work is not None
        phase.work()
    assert later[3].draw is not None
    batches = later[3].draw()
    assert [len(b.labels) for b in batches] == [7, 7]  # a batch per old class
    assert set(torch.cat([b.labels for b in batches]).tolist()) <= {0, 1, 2, 3}
    assert [g.params for g in later[3].groups] == [tuple(method.head.parameters())]
