"""The frozen ViT: equal to timm where nothing is injected, equal to the formula where it is."""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor
from vits import KINDS, vit

from hashprompt.backbone.architecture import check_supported
from hashprompt.backbone.vit import Backbone, Edit, Injection, run_block
from hashprompt.backbone.weights import load_backbone, weights_hash
from hashprompt.errors import UserError


@pytest.fixture
def images() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(5, 3, 32, 32)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_no_prompt_and_an_empty_prefix_equal_timm(kind: str, images: Tensor) -> None:
    model = vit(**KINDS[kind])
    expected = model.forward_features(images)[:, 0]
    backbone = Backbone(model)
    empty = torch.zeros(5, 2, 0, 24)
    torch.testing.assert_close(backbone(images), expected)
    every = Injection(prefix={0: empty, 1: empty, 2: empty})
    torch.testing.assert_close(backbone(images, every), expected)


@torch.no_grad()
def test_a_zero_prefix_is_not_an_empty_prefix(images: Tensor) -> None:
    backbone = Backbone(vit())
    zeros = Injection(prefix={0: torch.zeros(5, 2, 3, 24)})
    assert (backbone(images, zeros) - backbone(images)).abs().max() > 1e-3


@pytest.mark.parametrize("compensate", [False, True])
@pytest.mark.parametrize("gate", [None, lambda scores: 0.7 * torch.tanh(1.9 * scores)])
@torch.no_grad()
def test_prefix_attention_equals_the_formula_written_out(gate: Any, compensate: bool) -> None:
    """Eq. 4, head by head, image by image.

    Gates are added to the scores of the prefix alone (NoRGa). Compensated, the attention of the
    prefix is divided by its sum after the softmax (LAE).
    """
    block = vit().blocks[1]
    x, prefix = torch.randn(2, 7, 24), torch.randn(2, 2, 3, 24)
    out = torch.zeros(2, 7, 24)
    for b in range(2):
        q, k, v = block.attn.qkv(block.norm1(x[b])).split(24, dim=-1)
        k, v = torch.cat((prefix[b, 0], k)), torch.cat((prefix[b, 1], v))
        heads = []
        for h in range(2):
            part = slice(12 * h, 12 * h + 12)
            scores = q[:, part] @ k[:, part].T / 12**0.5
            if gate:
                scores[:, :3] += gate(scores[:, :3])
            attention = scores.softmax(-1)
            if compensate:
                attention[:, :3] /= attention[:, :3].sum(-1, keepdim=True)
            heads.append(attention @ v[:, part])
        mid = x[b] + block.attn.proj(torch.cat(heads, -1))
        out[b] = mid + block.mlp(block.norm2(mid))
    inject = Injection({1: prefix}, {1: gate} if gate else {}, compensate)
    torch.testing.assert_close(run_block(block, x, inject, 1), out)
    torch.testing.assert_close(run_block(block, x, inject, 1, cls_only=True), out[:, :1])


@torch.no_grad()
def test_adapters_stand_beside_the_mlp_and_after_the_block() -> None:
    block = vit().blocks[0]
    x, beside, behind = torch.randn(2, 7, 24), torch.randn(24, 24), torch.randn(24, 24)
    mid = x + block.attn(block.norm1(x))
    expected = (mid + block.mlp(block.norm2(mid)) + mid @ beside) @ behind
    edits: dict[str, Edit] = {
        "blocks.0.mlp": lambda u, out: out + u @ beside,
        "blocks.0": lambda _, out: out @ behind,
    }
    inject = Injection(edits=edits)
    torch.testing.assert_close(run_block(block, x, inject, 0), expected)


@torch.no_grad()
def test_features_before_the_norm_and_of_the_extra_tokens(images: Tensor) -> None:
    model = vit()
    backbone = Backbone(model)
    tokens = backbone.embed(images)
    extra = torch.randn(len(images), 3, 24)
    x = torch.cat((tokens, extra), dim=1)
    for block in model.blocks:
        x = block(x)
    inject = Injection(tokens={0: extra})
    torch.testing.assert_close(backbone.encode(tokens, inject, norm=False), x[:, 0])
    expected = model.norm(x)[:, -3:].mean(1)
    torch.testing.assert_close(backbone.encode(tokens, inject, read="tokens"), expected)


@torch.no_grad()
def test_extra_tokens_take_part_and_travel_on_or_are_dropped(images: Tensor) -> None:
    model = vit()
    backbone = Backbone(model)
    extra = torch.randn(5, 2, 24)
    embedded = backbone.embed(images)

    x = model.blocks[0](embedded)
    x = model.blocks[1](torch.cat((x, extra), 1))
    kept, dropped = model.blocks[2](x), model.blocks[2](x[:, :-2])
    for keep, expected in ((True, kept), (False, dropped)):
        inject = Injection(tokens={1: extra}, keep_tokens=keep)
        torch.testing.assert_close(backbone(images, inject), model.norm(expected)[:, 0])


@torch.no_grad()
def test_each_image_has_its_own_prompt(images: Tensor) -> None:
    backbone = Backbone(vit())
    prefix = torch.randn(5, 2, 4, 24)
    together = backbone(images, Injection(prefix={0: prefix, 2: prefix}))
    for i in range(5):
        own = prefix[i : i + 1]
        alone = backbone(images[i : i + 1], Injection(prefix={0: own, 2: own}))
        torch.testing.assert_close(alone[0], together[i])


@torch.no_grad()
def test_a_prefix_may_depend_on_the_tokens_that_enter_its_block(images: Tensor) -> None:
    backbone = Backbone(vit())
    entering = backbone.vit.blocks[0](backbone.embed(images))
    fixed = entering[:, :2, None].transpose(1, 2).expand(-1, 2, -1, -1)
    late = Injection(prefix={1: lambda x: x[:, :2, None].transpose(1, 2).expand(-1, 2, -1, -1)})
    torch.testing.assert_close(backbone(images, late), backbone(images, Injection({1: fixed})))


def test_the_vit_is_frozen_and_gradients_reach_the_prompts_alone(images: Tensor) -> None:
    backbone = Backbone(vit(drop_path_rate=0.5, proj_drop_rate=0.5)).train()
    before = weights_hash(backbone.vit)
    prefix = torch.randn(5, 2, 4, 24, requires_grad=True)
    first = backbone(images, Injection(prefix={0: prefix}))
    first.sum().backward()
    assert prefix.grad is not None
    assert prefix.grad.abs().sum() > 0
    assert all(p.grad is None for p in backbone.parameters())
    torch.testing.assert_close(first, backbone(images, Injection(prefix={0: prefix})))  # no dropout
    assert weights_hash(backbone.vit) == before


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_blocks_in_two_calls_equal_all_in_one_and_count_once(kind: str, images: Tensor) -> None:
    backbone = Backbone(vit(**KINDS[kind]))
    expected = backbone(images)
    backbone.passes.clear()
    prefix = Injection(prefix={2: torch.randn(5, 2, 3, 24)})
    for inject, whole in ((Injection(), expected), (prefix, backbone(images, prefix))):
        backbone.passes.clear()
        tokens = backbone.embed(images)
        first = backbone.encode(tokens, inject, norm=False, read="all", blocks=range(2))
        assert first.shape == tokens.shape
        found = backbone.encode(first, inject, blocks=range(2, 3))
        torch.testing.assert_close(found, whole)
        assert dict(backbone.passes) == {inject.kind: 5}


def test_models_that_cannot_carry_prompts_are_refused() -> None:
    with pytest.raises(UserError, match="no class token"):
        check_supported(vit(class_token=False, global_pool="avg"))
    with pytest.raises(UserError, match="not a plain vision transformer"):
        check_supported(timm.create_model("resnet18"))
    with pytest.raises(UserError, match=r"no layer blocks\.3\."):
        Backbone(vit())(torch.zeros(1, 3, 32, 32), Injection(prefix={3: torch.zeros(1, 2, 1, 24)}))


@torch.no_grad()
def test_another_image_size_resamples_positions_and_keeps_the_name_of_the_weights() -> None:
    larger, own = load_backbone("nano", image_size=48), load_backbone("nano")
    assert larger.model(torch.randn(2, 3, 48, 48)).shape == (2, 128)
    assert larger.weights_sha256 == own.weights_sha256
