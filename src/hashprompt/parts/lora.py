"""Low-rank changes of projections: W + B A, computed beside W or added to it."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.backbone.vit import Edit

Factors = tuple[Tensor, Tensor]  # A (r, inputs) and B (outputs, r)


def low_rank(factors: Mapping[str, Factors]) -> dict[str, Edit]:
    """Edits that add B A x to the outcome of each layer, by timm's name."""

    def edit(a: Tensor, b: Tensor) -> Edit:
        return lambda x, out: out + F.linear(F.linear(x, a), b)

    return {layer: edit(a, b) for layer, (a, b) in factors.items()}


def merged(backbone: Backbone, factors: Mapping[str, Factors]) -> dict[str, Tensor]:
    """The same as changed weights, for `Injection.weights`: no cost per image."""
    own = backbone.vit.get_parameter
    return {
        f"{layer}.weight": own(f"{layer}.weight") + (b @ a).to(own(f"{layer}.weight"))
        for layer, (a, b) in factors.items()
    }


def keys_and_values(b: Tensor) -> Tensor:
    """B of a joint qkv projection (3 D, r) that changes keys and values alone.

    Args:
        b: (2, D, r), for keys and for values.
    """
    return torch.cat((torch.zeros_like(b[:1]), b)).flatten(0, 1)
