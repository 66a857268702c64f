"""The plain ViT is timm's, bit by bit; what is not as plain is left to timm."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer

from hashprompt.backbone import Backbone, Injection
from hashprompt.backbone.light import load_light, plain_sizes
from hashprompt.backbone.plain import PlainViT
from hashprompt.backbone.preprocessing import LoadedBackbone, Preprocessing, weights_hash
from hashprompt.backbone.weights import load_backbone

SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
HALF = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic"}


def timm_vit(**changes: Any) -> VisionTransformer:
    torch.manual_seed(0)
    vit = VisionTransformer(**{**SIZES, "num_classes": 0, **changes}).eval()
    for parameter in vit.parameters():  # timm starts biases and tokens at zero: too easy
        torch.nn.init.normal_(parameter, std=0.2)
    return vit


def loaded(vit: VisionTransformer, native: int = 32) -> LoadedBackbone:
    size = vit.patch_embed.img_size[0]
    preprocessing = Preprocessing(size, (0.5,) * 3, (0.5,) * 3)
    return LoadedBackbone("vit", Backbone(vit), preprocessing, weights_hash(vit), native)


@pytest.mark.parametrize(
    "changes",
    [{}, {"qkv_bias": False}, {"init_values": 0.1}, {"mlp_ratio": 3.0}, {"img_size": 48}],
)
@torch.no_grad()
def test_it_gives_the_features_of_timm(changes: dict[str, Any]) -> None:
    vit = timm_vit(**changes)
    plain = PlainViT(**{**SIZES, **changes})
    plain.load_state_dict(vit.state_dict())
    for size in (48, 64):  # one of them resamples the position table
        prefix = {1: torch.randn(2, 2, 3, 32)}
        features = []
        for each in (vit, plain):
            each.set_input_size(img_size=(size, size))
            backbone, images = Backbone(each), torch.randn(2, 3, size, size)
            torch.manual_seed(1)
            images = torch.randn(2, 3, size, size)
            features.append((backbone(images), backbone(images, Injection(prefix=prefix))))
        for found, expected in zip(features[1], features[0], strict=True):
            assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"act_layer": "quick_gelu"},
        {"pre_norm": True},
        {"reg_tokens": 2},
        {"no_embed_class": True},
        {"qk_norm": True},
        {"norm_layer": "rmsnorm"},
    ],
)
def test_what_is_not_plain_is_left_to_timm(changes: dict[str, Any]) -> None:
    assert plain_sizes(loaded(timm_vit())) == {
        **SIZES,
        **{"mlp_ratio": 4.0, "qkv_bias": True, "init_values": None},
    }
    assert plain_sizes(loaded(timm_vit(**changes))) is None


def test_a_file_is_loaded_as_timm_loads_it(tmp_path: Path) -> None:
    path = tmp_path / "vit.safetensors"
    told = {"architecture": SIZES, "mean": [0.4] * 3, "std": [0.3] * 3}
    save_file(timm_vit().state_dict(), path, {k: json.dumps(v) for k, v in told.items()})
    for size in (32, 64):
        expected, found = load_backbone(str(path), size), load_light(str(path), size, None, {})
        assert found is not None
        assert found.preprocessing == expected.preprocessing
        assert found.weights_sha256 == expected.weights_sha256
        images = torch.randn(2, 3, size, size)
        assert torch.equal(found.model(images), expected.model(images))


def test_sizes_that_the_file_does_not_have_are_no_reason_to_compute_nonsense(
    tmp_path: Path,
) -> None:
    path = tmp_path / "vit.safetensors"
    save_file(timm_vit().state_dict(), path)
    assert load_light(str(path), 32, SIZES, HALF) is not None
    for wrong in ({"embed_dim": 64}, {"depth": 10**9}, {"num_heads": 5}, {"what": 1}):
        assert load_light(str(path), 32, {**SIZES, **wrong}, HALF) is None
    assert load_light(str(path), 32, None, HALF) is None
    for name in (str(tmp_path / "none.safetensors"), "no/such/--name", "vit_\x00"):
        assert load_light(name, 32, SIZES, HALF) is None
