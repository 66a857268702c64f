"""Low-rank changes of projections: W + B A, computed next to W or added to it."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.backbone.vit import Edit
from hashprompt.errors import UserError
from hashprompt.parts.precision import capable
from hashprompt.parts.trained_weights import stored_name

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


def joined_factors(a: Tensor, b: Tensor) -> Factors:
    """Factors of a joint qkv projection from A (2, r, D) and B (2, D, r) of keys and of values."""
    rank = a.shape[1]
    keys, values = F.pad(b[0], (0, rank)), F.pad(b[1], (rank, 0))
    return a.flatten(0, 1), keys_and_values(torch.stack((keys, values)))


class TrainedLoRA(nn.Module):
    """W + s B A at some layers of every block; at first B = 0, so nothing is changed.

    A starts as the leading right singular vectors of W.

    Args:
        layers: of a block, by timm's name, e.g. `attn.qkv`.
        rank: r.
        scale: s.
    """

    def __init__(
        self, backbone: Backbone, layers: Sequence[str], rank: int, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.scale = scale
        self.layers = [f"blocks.{i}.{layer}" for i in range(backbone.depth) for layer in layers]
        for layer in self.layers:
            try:
                weight = backbone.vit.get_parameter(f"{layer}.weight")
            except AttributeError as error:
                raise UserError(f"This backbone has no layer {layer} to be changed.") from error
            if rank > min(weight.shape):
                raise UserError(f"rank={rank}: {layer} has a rank of {min(weight.shape)} at most.")
            right = torch.linalg.svd(capable(weight.float()), full_matrices=False).Vh
            a, b = right[:rank].to(weight).contiguous(), weight.new_zeros(len(weight), rank)
            self.register_parameter(stored_name(f"{layer}.a"), nn.Parameter(a))  # (r, inputs)
            self.register_parameter(stored_name(f"{layer}.b"), nn.Parameter(b))  # (outputs, r)

    def tensors(self) -> dict[str, Tensor]:
        """The factors by name, e.g. for a `Snapshot`."""
        names = [f"{layer}.{factor}" for layer in self.layers for factor in "ab"]
        return {name: getattr(self, stored_name(name)) for name in names}

    def edits(self, factors: Mapping[str, Tensor] | None = None) -> dict[str, Edit]:
        """What the backbone is given; with the factors of now, or others."""
        own = self.tensors() if factors is None else factors
        each = {x: (own[f"{x}.a"], self.scale * own[f"{x}.b"]) for x in self.layers}
        return low_rank(each)
