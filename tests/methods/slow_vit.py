"""The ViT with prompt tokens, one image at a time, by timm's own blocks."""

import torch
from tiny import tiny_backbone
from torch import Tensor, nn

from hashprompt.backbone import Backbone


def lively_backbone() -> Backbone:
    """The tiny ViT with larger weights, so that prompts are seen in its features."""
    backbone = tiny_backbone()
    for parameter in backbone.vit.parameters():
        nn.init.normal_(parameter, std=0.2)
    return backbone


def slow_cls(backbone: Backbone, image: Tensor, prompts: dict[int, Tensor], norm: bool) -> Tensor:
    """CLS (D,) of an image (3, S, S); tokens (L, D) join right behind CLS before their block."""
    vit = backbone.vit
    x = vit._pos_embed(vit.patch_embed(image[None]))
    for index, block in enumerate(vit.blocks):
        if index in prompts:
            x = torch.cat((x[:, :1], prompts[index][None], x[:, 1:]), dim=1)
        x = block(x)
    return (vit.norm(x) if norm else x)[0, 0]
