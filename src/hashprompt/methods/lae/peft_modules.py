"""Parameter-efficient tuning of some blocks, as functions of the tuned values.

Beside the values that train, others of the same names can be used: those of a slow copy, say. Each
place has learned scales that start at 1, as in LAE.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.parts.adapters import branches, fill_down
from hashprompt.parts.lora import low_rank

Values = Mapping[str, Tensor]


class Pet(nn.Module):
    """Tuned values of P blocks.

    Args:
        blocks: which, from 0.
        size: of the bottleneck, the rank, or the length.
    """

    scales: ClassVar[tuple[int, ...]] = ()  # scales of a place

    def __init__(self, backbone: Backbone, blocks: Sequence[int], size: int) -> None:
        super().__init__()
        self.blocks = list(blocks)
        self.fill(len(self.blocks), backbone.dim, size)
        self.scale = nn.Parameter(torch.ones(len(self.blocks), *self.scales))

    def fill(self, places: int, dim: int, size: int) -> None:
        """Make the parameters; at their start they change little or nothing."""
        raise NotImplementedError

    def values(self) -> dict[str, Tensor]:
        """What trains, by name."""
        return dict(self.named_parameters())

    def inject(self, values: Values, images: int) -> Injection:
        """What the backbone is given for so many images."""
        raise NotImplementedError


class AttentionAdapters(Pet):
    """attn(z) + s · W_up GELU(W_down z), for z that the attention reads."""

    def fill(self, places: int, dim: int, size: int) -> None:
        self.down = nn.Parameter(torch.empty(places, dim + 1, size))
        self.up = nn.Parameter(torch.zeros(places, size + 1, dim))
        with torch.no_grad():
            fill_down(self.down)

    def inject(self, values: Values, images: int) -> Injection:
        layers = [f"blocks.{block}.attn" for block in self.blocks]
        up = values["scale"][:, None, None] * values["up"]
        return Injection(edits=branches(layers, values["down"], up, activation=F.gelu))


class KeyValueLora(Pet):
    """W + s B A for the projections of keys and of values."""

    scales = (2,)

    def fill(self, places: int, dim: int, size: int) -> None:
        bound = dim**-0.5
        self.a = nn.Parameter(torch.empty(places, 2, size, dim).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(places, 2, dim, size))

    def inject(self, values: Values, images: int) -> Injection:
        scaled = values["scale"][..., None, None] * values["b"]
        queries = (0, 0, scaled.shape[2], 0)  # rows of the joint projection that stay
        factors = {
            f"blocks.{block}.attn.qkv": (a.flatten(0, 1), F.pad(torch.block_diag(*b), queries))
            for block, a, b in zip(self.blocks, values["a"], scaled, strict=True)
        }
        return Injection(edits=low_rank(factors))


class CompensatedPrefixes(Pet):
    """Keys and values before the block's own, whose attention sums to 1 beside that of these."""

    scales = (2,)

    def fill(self, places: int, dim: int, size: int) -> None:
        self.prefix = nn.Parameter(torch.empty(places, 2, size, dim).uniform_(0, 0.01))

    def inject(self, values: Values, images: int) -> Injection:
        scaled = values["scale"][..., None, None] * values["prefix"]
        each = zip(self.blocks, scaled.expand(images, *scaled.shape).unbind(1), strict=True)
        return Injection(prefix=dict(each), compensate=True)
