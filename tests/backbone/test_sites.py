"""Sites in the ViT: edits of layers and changed weights, against timm's own modules."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from timm.layers import GluMlp
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from vits import KINDS, vit

from hashprompt.backbone import Backbone, Injection
from hashprompt.backbone.vit import LAYERS
from hashprompt.backbone.weights import weights_hash
from hashprompt.errors import UserError
from hashprompt.parts.lora import keys_and_values, low_rank, merged

DIM, HIDDEN, DEPTH = 24, 96, 3
WIDTHS = {"attn.qkv": 3 * DIM, "mlp.fc1": HIDDEN}  # of what comes out; else DIM
INPUTS = {"mlp.fc2": HIDDEN}  # of what enters
close = torch.testing.assert_close


@pytest.fixture
def images() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(3, 3, 32, 32)


# Edits. ------------------------------------------------------------------------------------

NAMES = ("patch_embed", *(f"blocks.{i}.{layer}".rstrip(".") for i in (1, 2) for layer in LAYERS))


def mixing(layer: str) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of both what enters the layer and what comes out, token by token."""
    inside = layer.split(".", 2)[-1] if layer.startswith("blocks") else layer
    torch.manual_seed(2)
    width = WIDTHS.get(inside, DIM)
    scale = torch.randn(width)
    if layer == "patch_embed":  # an image enters it, not tokens
        return lambda x, out: scale * out + 0.1
    read = 0.1 * torch.randn(INPUTS.get(inside, DIM), width)
    return lambda x, out: scale * out + x @ read


def timm_with(model: VisionTransformer, layer: str, edit: Any, images: Tensor) -> Tensor:
    """Tokens (B, N, D) from timm's own forward pass, the layer edited by a hook on its module.

    A branch (`attn`, `mlp`) ends with its layer scale, and the MLP's begins before its norm.
    """
    path, _, leaf = layer.rpartition(".")
    module, entered = model.get_submodule(layer), None
    if leaf in ("attn", "mlp"):
        block = model.get_submodule(path)
        module = block.ls1 if leaf == "attn" else block.ls2
        before = block.attn if leaf == "attn" else block.norm2
        entered = before.register_forward_hook(lambda m, x, out: seen.append(x[0]))
    seen: list[Tensor] = []

    def hook(_: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        return edit(seen[-1] if entered else given[0], out)

    handle = module.register_forward_hook(hook)
    try:
        return model.forward_features(images)
    finally:
        handle.remove()
        if entered:
            entered.remove()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", [*NAMES, "norm"])
@torch.no_grad()
def test_an_edit_is_a_hook_on_the_layer(layer: str, kind: str, images: Tensor) -> None:
    model = vit(**KINDS[kind])
    edit = mixing(layer)
    expected = timm_with(model, layer, edit, images)
    assert not torch.allclose(expected, model.forward_features(images), atol=1e-3)
    backbone, inject = Backbone(model), Injection(edits={layer: edit})
    tokens = backbone.embed(images, inject)
    close(backbone.encode(tokens, inject, read="all"), expected, atol=1e-4, rtol=1e-4)
    # The last block is computed for CLS alone.
    close(backbone(images, inject), expected[:, 0], atol=1e-4, rtol=1e-4)


def test_every_layer_of_a_block_is_tried() -> None:
    of_last = {name.removeprefix("blocks.2").lstrip(".") for name in NAMES if "blocks.2" in name}
    assert of_last == set(LAYERS)
    assert len(LAYERS) == 9


@pytest.mark.parametrize(
    "layer", ["blocks.3.mlp", "blocks.0.attn.q", "block.0", "head", "blocks.0.mlp.act", ""]
)
def test_layers_that_are_not_there_are_refused_in_words(layer: str, images: Tensor) -> None:
    inject = Injection(edits={layer: lambda x, out: out})
    with pytest.raises(UserError, match=r"no layer .*It has patch_embed, norm, .*blocks\.2"):
        Backbone(vit())(images, inject)


def test_what_is_inside_a_gated_mlp_is_refused_and_the_rest_is_not(images: Tensor) -> None:
    backbone = Backbone(vit(mlp_layer=GluMlp))
    keep = lambda x, out: out  # noqa: E731
    with pytest.raises(UserError, match=r"no layer blocks\.0\.mlp\.fc1"):
        backbone(images, Injection(edits={"blocks.0.mlp.fc1": keep}))
    assert torch.equal(backbone(images, Injection(edits={"blocks.0.mlp": keep})), backbone(images))


# Weights. ----------------------------------------------------------------------------------

CHANGED = (
    "patch_embed.proj.weight",
    "pos_embed",
    "cls_token",
    "blocks.0.norm1.bias",
    "blocks.1.attn.qkv.weight",
    "blocks.2.attn.qkv.bias",
    "blocks.2.mlp.fc2.weight",
    "norm.weight",
)


@torch.no_grad()
def test_weights_are_those_of_a_changed_copy_and_the_original_stays(images: Tensor) -> None:
    model = vit()
    copy = deepcopy(model)
    before, plain = weights_hash(model), Backbone(model)(images)
    for name in CHANGED:
        copy.get_parameter(name).add_(torch.randn_like(copy.get_parameter(name)))
    backbone = Backbone(model)
    held = dict(model.named_parameters())
    inject = Injection(weights={name: copy.get_parameter(name) for name in CHANGED})
    close(backbone(images, inject), copy.forward_features(images)[:, 0])
    assert weights_hash(model) == before
    assert all(held[name] is parameter for name, parameter in model.named_parameters())
    assert torch.equal(backbone(images), plain)


def test_the_original_weights_are_back_after_an_error(images: Tensor) -> None:
    backbone = Backbone(vit())
    before, held = weights_hash(backbone.vit), dict(backbone.vit.named_parameters())
    other = {name: torch.zeros_like(held[name]) for name in CHANGED}

    def fail(_: Tensor, __: Tensor) -> Tensor:
        raise RuntimeError("inside")

    for layer in ("patch_embed", "blocks.1.mlp"):
        with pytest.raises(RuntimeError, match="inside"):
            backbone(images, Injection(edits={layer: fail}, weights=other))
        assert all(held[name] is p for name, p in backbone.vit.named_parameters())
        assert weights_hash(backbone.vit) == before


@pytest.mark.parametrize("name", ["blocks.7.norm1.weight", "blocks.0.norm1.scale", "nothing"])
def test_weights_that_are_not_there_are_refused_in_words(name: str, images: Tensor) -> None:
    backbone = Backbone(vit())
    with pytest.raises(UserError, match=f"no parameter `{name}`"):
        backbone(images, Injection(weights={name: torch.zeros(DIM)}))


def test_gradients_reach_changed_weights_and_edits_alone(images: Tensor) -> None:
    backbone = Backbone(vit())
    own = backbone.vit.get_parameter("blocks.0.attn.qkv.weight").clone().requires_grad_()
    shift = torch.zeros(DIM, requires_grad=True)
    inject = Injection(
        edits={"blocks.1": lambda x, out: out + shift},
        weights={"blocks.0.attn.qkv.weight": own},
    )
    backbone(images, inject).square().sum().backward()
    for tensor in (own, shift):
        assert tensor.grad is not None
        assert tensor.grad.abs().sum() > 0
    assert all(p.grad is None and not p.requires_grad for p in backbone.parameters())


def test_passes_are_counted_by_kind(images: Tensor) -> None:
    backbone = Backbone(vit())
    trained = nn.Parameter(torch.zeros(DIM))
    edits = {"norm": lambda x, out: out + trained}
    backbone(images)
    backbone(images[:1], Injection(edits=edits))
    backbone(images[:2], Injection(weights={"norm.bias": trained}))
    with torch.no_grad():
        backbone(images, Injection(edits=edits))
        backbone(images, Injection(edits=edits, weights={"norm.bias": trained}))
        backbone(images[:2], Injection(tokens={0: torch.zeros(2, 1, DIM)}))
    expected = {"plain": 3, "prompted+grad": 1, "whole+grad": 2, "prompted": 5, "whole": 3}
    assert backbone.passes == expected


# LoRA. -------------------------------------------------------------------------------------

SITES = {
    "blocks.0.attn.qkv": (DIM, 3 * DIM),
    "blocks.2.attn.qkv": (DIM, 3 * DIM),
    "blocks.1.attn.proj": (DIM, DIM),
    "blocks.2.mlp.fc1": (DIM, HIDDEN),
    "blocks.1.mlp.fc2": (HIDDEN, DIM),
}


def factors(layer: str, rank: int = 2) -> tuple[Tensor, Tensor]:
    inputs, outputs = SITES[layer]
    torch.manual_seed(len(layer))
    return torch.randn(rank, inputs), 0.1 * torch.randn(outputs, rank)


@pytest.mark.parametrize("layers", [*([name] for name in SITES), list(SITES)])
@torch.no_grad()
def test_low_rank_changes_beside_the_weights_and_in_them_are_equal(
    layers: list[str], images: Tensor
) -> None:
    backbone = Backbone(vit())
    chosen = {layer: factors(layer) for layer in layers}
    copy = deepcopy(backbone.vit)
    for layer, (a, b) in chosen.items():
        copy.get_parameter(f"{layer}.weight").add_(b @ a)
    expected = copy.forward_features(images)[:, 0]
    assert not torch.allclose(expected, backbone(images), atol=1e-3)
    for inject in (
        Injection(edits=low_rank(chosen)),
        Injection(weights=merged(backbone, chosen)),
    ):
        close(backbone(images, inject), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_keys_and_values_change_and_queries_do_not(images: Tensor) -> None:
    backbone, layer = Backbone(vit()), "blocks.1.attn.qkv"
    a, b = torch.randn(2, DIM), torch.randn(2, DIM, 2)
    chosen = {layer: (a, keys_and_values(b))}
    copy = deepcopy(backbone.vit)
    weight = copy.get_parameter(f"{layer}.weight")
    weight[DIM : 2 * DIM] += b[0] @ a
    weight[2 * DIM :] += b[1] @ a
    expected = copy.forward_features(images)[:, 0]
    changed = merged(backbone, chosen)
    assert torch.equal(
        changed[f"{layer}.weight"][:DIM], backbone.vit.blocks[1].attn.qkv.weight[:DIM]
    )
    for inject in (Injection(edits=low_rank(chosen)), Injection(weights=changed)):
        close(backbone(images, inject), expected, atol=1e-5, rtol=1e-5)
