"""SSF: the outcome of every linear layer and norm of the ViT is scaled and shifted."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hashprompt.backbone import Backbone
from hashprompt.errors import UserError


class ScaleShift(nn.Module):
    """γ ⊙ (W x + b) + β is a layer with the weights γ ⊙ W and γ ⊙ b + β.

    So nothing is inserted: the frozen backbone runs with changed weights.

    Args:
        backbone: whose patch projection, blocks and final norm are followed by γ and β.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        inside = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
        blocks = [f"vit.blocks.{i}.{name}" for i in range(backbone.depth) for name in inside]
        self.sites = ["vit.patch_embed.proj", *blocks, "vit.norm"]
        layers: list[Any] = [backbone.get_submodule(site) for site in self.sites]
        if any(layer.bias is None for layer in layers):
            raise UserError("This backbone has layers without bias, so SSF cannot shift them.")
        self.widths = [len(layer.bias) for layer in layers]
        self.scale = nn.Parameter(torch.empty(sum(self.widths)).normal_(1, 0.02))  # γ
        self.shift = nn.Parameter(torch.empty(sum(self.widths)).normal_(0, 0.02))  # β

    def features(self, backbone: Backbone, images: Tensor) -> Tensor:
        """CLS features (B, D) of images (B, 3, S, S)."""
        changed = {}
        parts = (self.scale.split(self.widths), self.shift.split(self.widths))
        for site, scale, shift in zip(self.sites, *parts, strict=True):
            layer: Any = backbone.get_submodule(site)
            rows = scale.view(-1, *[1] * (layer.weight.ndim - 1))
            changed[f"{site}.weight"] = rows * layer.weight
            changed[f"{site}.bias"] = scale * layer.bias + shift
        out: Tensor = functional_call(backbone, changed, (images,))
        return out
