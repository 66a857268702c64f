"""APER and VPT-Deep."""

from functools import partial
from typing import Any

import fakes
import numpy as np
import pytest
import torch
from fakes import small_backbone
from torch import nn

from hashprompt.methods.aper.method import Aper, AperConfig, DeepTokens

learned = partial(fakes.learned, "aper", adapter_width=4, prompt_length=3, lr=0.5)

close = torch.testing.assert_close
KINDS = ("adapter", "ssf", "vpt")


def fresh(**options: Any) -> Aper:
    defaults = {"adapter_width": 4, "prompt_length": 3, "lr": 0.5}
    return Aper(AperConfig(**{**defaults, **options}), small_backbone())


# VPT-Deep. ---------------------------------------------------------------------------------


@torch.no_grad()
def test_tokens_join_before_every_block_and_leave_after_it() -> None:
    backbone, images = small_backbone(), torch.randn(2, 3, 16, 16)
    deep = DeepTokens(backbone, 3)
    nn.init.normal_(deep.tokens)
    x = backbone.embed(images)
    for block, own in zip(backbone.vit.blocks, deep.tokens, strict=True):
        extended = torch.cat((x, torch.stack([own, own])), dim=1)
        x = block(extended)[:, : x.shape[1]]
    close(backbone(images, deep.inject()), backbone.vit.norm(x)[:, 0])


@pytest.mark.parametrize(("start", "stay_equal"), [("zero", True), ("xavier_uniform", False)])
def test_tokens_that_start_at_zero_stay_equal_to_each_other(start: str, stay_equal: bool) -> None:
    method, _ = learned((0, 1), adaptation="vpt", prompt_start=start)
    tokens = method.adapted.tokens.detach()
    assert tokens.any()
    torch.manual_seed(0)
    assert not torch.equal(tokens, fresh(adaptation="vpt", prompt_start=start).adapted.tokens)
    assert torch.allclose(tokens, tokens[:, :1].expand_as(tokens), rtol=1e-3) == stay_equal


# The whole. --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("second", [(2, 3), (0, 1)])  # new classes, or a new domain
def test_answers_are_cosines_of_plain_and_adapted_features_as_one_vector(
    kind: str, second: tuple[int, ...]
) -> None:
    method, tasks = learned((0, 1), second, adaptation=kind)
    assert not torch.equal(*(method.backbone(tasks[0].images, i) for i in (None, injected(method))))
    images = torch.cat([task.images for task in tasks])
    labels = np.concatenate([task.labels.numpy() for task in tasks])
    with torch.no_grad():
        plain = method.backbone(images)
        adapted = method.backbone(images, injected(method)).numpy()
    both = [[*f, *g] for f, g in zip(plain.numpy().tolist(), adapted.tolist(), strict=True)]
    both = np.array(both)
    expected = np.zeros((len(both), labels.max() + 1))
    for i, f in enumerate(both):
        for c in range(labels.max() + 1):
            mean = both[labels == c].mean(0)
            expected[i, c] = f @ mean / np.sqrt((f @ f) * (mean @ mean))
    with torch.no_grad():
        for known in (None, plain):
            found = method.predict(images, known).logits.numpy()
            np.testing.assert_allclose(found, expected, atol=1e-5)


def injected(method: Aper) -> Any:
    return method.adapted.inject()
