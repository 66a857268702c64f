"""Ours is timm's plain ViT, bit by bit; what is not as plain stays timm's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from vits import SIZES
from vits import vit as timm_vit

from hashprompt.backbone import Backbone, Injection
from hashprompt.backbone.architecture import _as_plain
from hashprompt.backbone.plain import Architecture, PlainViT
from hashprompt.backbone.weights import load_backbone
from hashprompt.errors import UserError

HALF = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic"}


@pytest.mark.parametrize(
    "changes",
    [{}, {"qkv_bias": False}, {"init_values": 0.1}, {"mlp_ratio": 3.0}, {"img_size": 48}],
)
@torch.no_grad()
def test_it_gives_the_features_of_timm(changes: dict[str, Any]) -> None:
    vit = timm_vit(**changes)
    plain = _as_plain(vit)
    assert isinstance(plain, PlainViT)
    plain = PlainViT(Architecture(**plain.sizes))
    plain.load_state_dict(vit.state_dict())
    # Full fine-tuning sums gradients in this order.
    assert [name for name, _ in plain.named_parameters()] == [n for n, _ in vit.named_parameters()]
    for size in (48, 64):  # one of them resamples the position table
        prefix = {1: torch.randn(2, 2, 3, 24)}
        images = torch.randn(2, 3, size, size)
        features = []
        for each in (vit, plain):
            each.set_input_size(img_size=(size, size))
            backbone = Backbone(each)
            features.append((backbone(images), backbone(images, Injection(prefix=prefix))))
        torch.testing.assert_close(features[0][0], vit.forward_features(images)[:, 0])
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
        {"mlp_layer": timm.layers.GluMlp},
        {"mlp_layer": timm.layers.SwiGLU},
    ],
)
def test_what_is_not_plain_is_left_to_timm(changes: dict[str, Any]) -> None:
    vit = timm_vit(**changes)
    assert _as_plain(vit) is vit


PLAIN = ("vit_tiny_patch16_224", "vit_small_patch14_dinov2", "deit_tiny_patch16_224")
OTHER = ("vit_small_patch14_reg4_dinov2", "deit3_small_patch16_224", "vit_small_patch16_rope_224")


@pytest.mark.parametrize("name", [*PLAIN, *OTHER])
@torch.no_grad()
def test_architectures_of_timm_run_as_ours_where_they_are_plain(name: str, tmp_path: Path) -> None:
    if not timm.is_model(name):
        pytest.skip("this timm lacks it")
    torch.manual_seed(0)
    vit = timm.create_model(name, num_classes=0, img_size=56, depth=2).eval()
    try:
        found = _as_plain(vit)
        assert isinstance(found, PlainViT) == (name in PLAIN)
        images = torch.randn(1, 3, 56, 56)
        expected = vit.forward_features(images)[:, 0]
        torch.testing.assert_close(Backbone(found)(images), expected)
    except (AttributeError, UserError):
        assert name in OTHER


def test_a_file_of_ours_needs_no_timm(tmp_path: Path) -> None:
    path = tmp_path / "vit.safetensors"
    vit = timm_vit()
    told = {"architecture": SIZES, "mean": [0.4] * 3, "std": [0.3] * 3}
    save_file(vit.state_dict(), path, {k: json.dumps(v) for k, v in told.items()})
    images = torch.randn(2, 3, 64, 64)
    found = load_backbone(str(path), 64)
    vit.set_input_size(img_size=(64, 64))
    assert torch.equal(found.model(images), Backbone(vit)(images))
    assert found.preprocessing.std == (0.3,) * 3
    code = (
        "import sys\nfrom hashprompt.backbone.weights import load_backbone\n"
        "load_backbone(sys.argv[1], 64)\n"
        "print({'timm', 'torchvision'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_recorded_sizes_are_used_where_they_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "vit.safetensors"
    vit = timm_vit()
    save_file(vit.state_dict(), path)
    found = load_backbone(str(path), 32, recorded={"architecture": SIZES, **HALF})
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(found.model(images), Backbone(vit)(images))
    for wrong in ({"embed_dim": 64}, {"depth": 10**9}, {"num_heads": 5}, {"what": 1}):
        with pytest.raises(UserError, match="architecture"):  # of timm, which knows none so small
            load_backbone(str(path), 32, recorded={"architecture": {**SIZES, **wrong}, **HALF})
