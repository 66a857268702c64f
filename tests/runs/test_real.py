"""Real weights and real images, where a user has them (HASHPROMPT_WEIGHTS, HASHPROMPT_DATA)."""

import os
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file
from timm.models.vision_transformer import checkpoint_filter_fn

import hashprompt
from hashprompt.backbone.weights import load_backbone

pytestmark = pytest.mark.real
NAMES = {
    "vit_tiny_patch16_224": "vit_tiny_patch16_224_augreg_in21k_ft_in1k_fp16.safetensors",
    "vit_small_patch14_dinov2": "dinov2_vits14_lvd142m_fp16.safetensors",
}


def found(variable: str, name: str) -> Path:
    path = Path(os.environ.get(variable, "")) / name
    if variable not in os.environ or not path.is_file():
        pytest.skip(f"no {name} in ${variable}")
    return path


@pytest.mark.parametrize("size", [112, 224])
@pytest.mark.parametrize("architecture", NAMES)
@torch.no_grad()
def test_real_weights_give_the_features_of_timm(architecture: str, size: int) -> None:
    path = found("HASHPROMPT_WEIGHTS", NAMES[architecture])
    backbone = load_backbone(str(path), image_size=size)
    reference = timm.create_model(architecture, img_size=size, num_classes=0).eval()
    state = {k: v.float() for k, v in load_file(path).items() if not k.startswith("head.")}
    reference.load_state_dict(checkpoint_filter_fn(state, reference), strict=False)
    images = torch.randn(3, 3, size, size)
    expected = reference.forward_features(images)[:, 0]
    torch.testing.assert_close(backbone.model(images), expected, rtol=1e-3, atol=1e-3)
    imagenet = (0.485, 0.456, 0.406)
    assert backbone.preprocessing.mean == (imagenet if "dino" in architecture else (0.5,) * 3)


def test_the_position_table_of_dinov2_is_resampled_to_the_image() -> None:
    path = found("HASHPROMPT_WEIGHTS", NAMES["vit_small_patch14_dinov2"])
    stored = load_file(path)["pos_embed"].float()
    assert stored.shape == (1, 1 + 37**2, 384)  # made for 518 px
    for size, grid in ((518, 37), (224, 16), (112, 8)):
        table = load_backbone(str(path), image_size=size).model.vit.pos_embed
        grid_part = stored[:, 1:].unflatten(1, (37, 37)).permute(0, 3, 1, 2)
        expected = torch.nn.functional.interpolate(
            grid_part, (grid, grid), mode="bicubic", antialias=True
        )
        torch.testing.assert_close(table[:, :1], stored[:, :1])
        torch.testing.assert_close(table[:, 1:], expected.flatten(2).mT)


def test_hash_learns_real_images_with_real_weights(tmp_path: Path) -> None:
    result = hashprompt.run(
        stream=f"npz:{found('HASHPROMPT_DATA', 'cifar100_100x30.npz')}",
        backbone=str(found("HASHPROMPT_WEIGHTS", NAMES["vit_tiny_patch16_224"])),
        preset="best",
        out=tmp_path / "run",
        quiet=True,
        **{"classes": 8, "tasks": 2, "train_per_class": 20, "test_per_class": 10},
        **{"image_size": 112, "epochs": 1, "batch_size": 32, "prompt_length": 8},
    )
    faa = result.metrics["FAA"]
    assert faa is not None
    assert faa > 60  # chance is 12.5
