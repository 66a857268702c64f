"""SSF: the outcome of every linear layer and norm of the ViT is scaled and shifted."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection

LAYERS = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")


class ScaleShift(nn.Module):
    """γ ⊙ layer(x) + β at the patches, in all blocks and at the final norm.

    Args:
        backbone: its widths matter.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        blocks: Any = backbone.vit.blocks
        widths = {"attn.qkv": 3 * backbone.dim, "mlp.fc1": blocks[0].mlp.fc1.out_features}
        inside = [f"blocks.{i}.{layer}" for i in range(backbone.depth) for layer in LAYERS]
        self.layers = ["patch_embed", *inside, "norm"]
        self.widths = [widths.get(name.split(".", 2)[-1], backbone.dim) for name in self.layers]
        self.scale = nn.Parameter(torch.empty(sum(self.widths)).normal_(1, 0.02))  # γ
        self.shift = nn.Parameter(torch.empty(sum(self.widths)).normal_(0, 0.02))  # β

    def inject(self) -> Injection:
        """What the backbone is given."""
        parts = (self.scale.split(self.widths), self.shift.split(self.widths))
        return Injection(
            edits={
                layer: partial(_affine, scale=scale, shift=shift)
                for layer, scale, shift in zip(self.layers, *parts, strict=True)
            }
        )


def _affine(_: Tensor, out: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return torch.addcmul(shift, out, scale)
