"""Small ViTs of timm for the tests of the backbone."""

from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer

SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 2}
KINDS = {
    "plain": {},
    "no bias, normed queries": {"qkv_bias": False, "qk_norm": True},
    "deit-3": {"no_embed_class": True, "init_values": 0.1},
    "layer scale, registers": {"init_values": 0.5, "reg_tokens": 4},
    "pre-norm": {"pre_norm": True},
}


def vit(**changes: Any) -> VisionTransformer:
    torch.manual_seed(0)
    model = VisionTransformer(**{**SIZES, "num_classes": 0, **changes}).eval()
    for parameter in model.parameters():  # timm starts biases and tokens at zero: too easy
        torch.nn.init.normal_(parameter, std=0.2)
    return model
