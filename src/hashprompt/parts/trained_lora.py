"""One low-rank change of the ViT that all tasks train."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.backbone.vit import Edit
from hashprompt.errors import UserError
from hashprompt.parts.lora import low_rank
from hashprompt.parts.precision import capable


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
            self.register_parameter(_stored(f"{layer}.a"), nn.Parameter(a))  # (r, inputs)
            self.register_parameter(_stored(f"{layer}.b"), nn.Parameter(b))  # (outputs, r)

    def tensors(self) -> dict[str, Tensor]:
        """The factors by name, e.g. for a `Snapshot`."""
        names = [f"{layer}.{factor}" for layer in self.layers for factor in "ab"]
        return {name: getattr(self, _stored(name)) for name in names}

    def edits(self, factors: Mapping[str, Tensor] | None = None) -> dict[str, Edit]:
        """What the backbone is given; with the factors of now, or others."""
        own = self.tensors() if factors is None else factors
        each = {x: (own[f"{x}.a"], self.scale * own[f"{x}.b"]) for x in self.layers}
        return low_rank(each)


def _stored(name: str) -> str:
    return name.replace(".", "/")  # torch allows no dot within a name
