"""Methods on a ViT of five blocks, with random numbers where training would have left others."""

from types import SimpleNamespace
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods import METHODS

DIM = 16


def backbone() -> Backbone:
    torch.manual_seed(0)
    vit = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=DIM, depth=5, num_heads=2, num_classes=0
    )
    for parameter in vit.parameters():  # timm starts biases and tokens at zero: too easy
        torch.nn.init.normal_(parameter, std=0.2)
    return Backbone(vit)


def task(index: int) -> Any:
    """A task of two classes."""
    return SimpleNamespace(index=index, classes=(2 * index, 2 * index + 1))


def learned(name: str, tasks: int = 3, **options: Any) -> Any:
    """A method after some tasks; the same name and options give the same numbers."""
    registered = METHODS[name]
    method = registered.load()(registered.config(**options), backbone())
    for index in range(tasks):
        method.begin_task(task(index))
        for parameter in method.parameters():
            parameter.data.uniform_(-1, 1)
    return method


def images(count: int) -> tuple[Tensor, Tensor]:
    """Images (B, 3, 16, 16), and plain features (B, 16) that look in all directions."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(count, 3, 16, 16, generator=generator)
    return pixels, torch.randn(count, DIM, generator=generator)
