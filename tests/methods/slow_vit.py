"""The ViT with prompt tokens, one image at a time, by timm's own blocks."""

import torch
from torch import Tensor

from hashprompt.backbone import Backbone


def slow_cls(backbone: Backbone, image: Tensor, prompts: dict[int, Tensor], norm: bool) -> Tensor:
    """CLS (D,) of an image (3, S, S); tokens (L, D) join right behind CLS before their block."""
    vit = backbone.vit
    x = vit._pos_embed(vit.patch_embed(image[None]))
    for index, block in enumerate(vit.blocks):
        if index in prompts:
            x = torch.cat((x[:, :1], prompts[index][None], x[:, 1:]), dim=1)
        x = block(x)
    return (vit.norm(x) if norm else x)[0, 0]
