"""L2P: its formulas against slow ones."""

import math

import pytest
import torch
from sizes_helper import prompt_machinery
from small import DIM, images, learned, task
from torch import Tensor

from hashprompt.errors import UserError
from hashprompt.methods.base import Batch
from hashprompt.methods.l2p import L2P, L2PConfig
from hashprompt.options import build

close = torch.testing.assert_close
OPTIONS = {"prompts": 7, "prompt_length": 2, "top_k": 3, "pull": 0.4}


def slow_cosine(a: Tensor, b: Tensor) -> float:
    dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(float(x) ** 2 for x in a) * sum(float(y) ** 2 for y in b))


def nearest(method: L2P, query: Tensor) -> list[int]:
    """The three prompts of one image, nearest first."""
    keys = method.keys.detach()
    return sorted(range(7), key=lambda n: -slow_cosine(query, keys[n]))[:3]


def slow_outcomes(method: L2P, tokens: Tensor, query: Tensor) -> Tensor:
    """All tokens after timm's own ViT, with the prompts between class token and patches."""
    extra = torch.cat([method.prompts[n] for n in nearest(method, query)])
    x = torch.cat((tokens[:1], extra, tokens[1:]))[None]
    vit = method.backbone.vit
    return vit.norm(vit.blocks(x))[0]


@torch.no_grad()
def test_keys_are_pulled_to_the_images_that_chose_them() -> None:
    method = learned("l2p", **OPTIONS)
    pixels, query = images(5)
    losses = method.prompt(method.backbone.embed(pixels), query, training=True).losses
    total = sum(slow_cosine(q, method.keys[n]) for q in query for n in nearest(method, q))
    close(losses["pull"], torch.tensor(-0.4 * total / 5))


@pytest.mark.parametrize("head_input", ["cls", "prompts"])
@torch.no_grad()
def test_the_nearest_prompts_join_the_input(head_input: str) -> None:
    method = learned("l2p", **OPTIONS, head_input=head_input)
    pixels, query = images(5)
    assert len({tuple(nearest(method, q)) for q in query}) > 1
    logits = method.predict(pixels, query).logits
    for row, tokens, q in zip(logits, method.backbone.embed(pixels), query, strict=True):
        outcomes = slow_outcomes(method, tokens, q)
        read = outcomes[0] if head_input == "cls" else outcomes[1:7].mean(0)
        close(row, method.head.weight @ read + method.head.bias, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_query_is_the_plain_feature() -> None:
    method = learned("l2p", **OPTIONS)
    pixels, _ = images(5)
    close(method.predict(pixels).logits, method.predict(pixels, method.backbone(pixels)).logits)


def test_only_what_was_chosen_and_the_classes_of_the_task_learn() -> None:
    method = learned("l2p", **OPTIONS)
    pixels, _ = images(5)
    labels = torch.tensor([2, 3, 2, 3, 3])
    losses = method.phases(task(1))[0].step(Batch(pixels, labels))
    sum(losses.values()).backward()
    chosen = {n for q in method.backbone(pixels) for n in nearest(method, q)}
    assert 3 <= len(chosen) < 7
    for parameter in method.prompt_parameters():
        moved = parameter.grad.flatten(1).abs().sum(1).nonzero()[:, 0]
        assert set(moved.tolist()) == chosen
    assert method.head.weight.grad.abs().sum(1).nonzero()[:, 0].tolist() == [2, 3]


def test_prompts_and_keys_start_in_their_range() -> None:
    method = learned("l2p", tasks=0, prompts=30, init_range=(0.0, 0.01))
    for start in method.prompt_parameters():
        assert start.min() >= 0
        assert 0.0099 < start.max() <= 0.01
    assert method.keys.shape == (30, DIM)


def test_more_prompts_than_there_are_cannot_be_chosen() -> None:
    with pytest.raises(UserError, match="top_k=5 must not exceed prompts=4"):
        build(L2PConfig, {"prompts": 4})


def test_sizes_on_a_vit_b() -> None:
    assert prompt_machinery("l2p") == 30 * (5 + 1) * 768 == 138_240
