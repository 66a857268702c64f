"""Small trained branches next to the frozen layers: s · W_up act(W_down x), added to the output.

The weights of all places are one tensor, (places, D + 1, h) or (places, h + 1, D), where the last
row of each place is the bias. So a set per task is a row of stacked tensors.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.backbone.vit import Edit
from hashprompt.parts.slots import TaskSlots

Activation = Callable[[Tensor], Tensor]
Fill = Callable[[Tensor], object]
DROPOUT = 0.1  # of hidden units, while adapters are trained
SCALED = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")  # of a block, by SSF


def bottleneck(
    x: Tensor,
    down: Tensor,
    up: Tensor,
    activation: Activation | None = F.relu,
    dropout: float = 0.0,
) -> Tensor:
    """W_up act(W_down x), (B, N, D) -> (B, N, D).

    Args:
        x: (B, N, D).
        down: (D + 1, h), or (B, D + 1, h) for a branch per image.
        up: (h + 1, D), or (B, h + 1, D).
        activation: None for a linear branch.
        dropout: rate at which hidden units are dropped.
    """
    hidden = x @ down[..., :-1, :] + down[..., -1:, :]
    hidden = hidden if activation is None else activation(hidden)
    return F.dropout(hidden, dropout) @ up[..., :-1, :] + up[..., -1:, :]


def branches(
    layers: Sequence[str],
    down: Iterable[Tensor],
    up: Iterable[Tensor],
    scale: float | Tensor = 1.0,
    activation: Activation | None = F.relu,
    dropout: float = 0.0,
) -> dict[str, Edit]:
    """Edits that add a branch at each of the layers, with its own weights."""

    def beside(x: Tensor, out: Tensor, down: Tensor, up: Tensor) -> Tensor:
        return out + scale * bottleneck(x, down, up, activation, dropout)

    each = zip(layers, down, up, strict=True)
    return {layer: partial(beside, down=down_, up=up_) for layer, down_, up_ in each}


def beside_mlps(backbone: Backbone) -> list[str]:
    """The layers next to which AdaptFormer has adapters."""
    return [f"blocks.{i}.mlp" for i in range(backbone.depth)]


def fill_down(layers: Tensor) -> None:
    """Start of W_down (…, D + 1, h): U(±1/√D), no bias."""
    bound = (layers.shape[-2] - 1) ** -0.5
    layers.uniform_(-bound, bound)[..., -1, :] = 0


class Adapters(nn.Module):
    """AdaptFormer: an adapter next to the MLP of every block; at the start they add nothing.

    Args:
        width: h, of the bottleneck.
        scale: s.
    """

    def __init__(self, backbone: Backbone, width: int = 64, scale: float = 0.1) -> None:
        super().__init__()
        self.scale, self.layers = scale, beside_mlps(backbone)
        self.down = nn.Parameter(torch.empty(backbone.depth, backbone.dim + 1, width))
        self.up = nn.Parameter(torch.zeros(backbone.depth, width + 1, backbone.dim))
        with torch.no_grad():
            fill_down(self.down)

    def inject(self, training: bool = False) -> Injection:
        """What the backbone is given; with dropout in training."""
        dropout = DROPOUT if training else 0.0
        both = (self.down, self.up)
        return Injection(edits=branches(self.layers, *both, self.scale, dropout=dropout))


class TaskBranches(nn.Module):
    """W_down and W_up of some places for every task; the newest train, the older ones are frozen.

    Args:
        places: branches of a task.
        dim: D, width of the tokens.
        width: h, of the bottleneck.
        down, up: fill W_down and W_up in place.
        biases: 1, or 0 without the last rows.
    """

    def __init__(
        self,
        places: int,
        dim: int,
        width: int,
        down: Fill = fill_down,
        up: Fill = torch.zero_,
        biases: int = 1,
    ) -> None:
        super().__init__()
        self.down = TaskSlots((places, dim + biases, width), down)
        self.up = TaskSlots((places, width + biases, dim), up)

    def add(self) -> None:
        """Freeze the newest set and start that of the next task."""
        for slots in (self.down, self.up):
            slots.add(copy_last=False)

    def current(self) -> list[nn.Parameter]:
        """What trains."""
        return [self.down.current, self.up.current]

    @property
    def tasks(self) -> int:
        return self.down.tasks

    def of(self, task: int) -> tuple[Tensor, Tensor]:
        """W_down and W_up (places, …) of a task's set."""
        return self.down.stacked()[task], self.up.stacked()[task]

    def of_images(self, task: Tensor | None, count: int) -> tuple[list[Tensor], list[Tensor]]:
        """W_down and W_up of each place, (B, …), for images of the tasks (B,); None: the newest."""
        both = (slots.of(task, count).unbind(1) for slots in (self.down, self.up))
        down, up = (list(each) for each in both)
        return down, up


class ScaleShift(nn.Module):
    """SSF: γ ⊙ layer(x) + β at the patches, in all blocks and at the final norm.

    Args:
        backbone: its widths matter.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        blocks: Any = backbone.vit.blocks
        widths = {"attn.qkv": 3 * backbone.dim, "mlp.fc1": blocks[0].mlp.fc1.out_features}
        inside = [f"blocks.{i}.{layer}" for i in range(backbone.depth) for layer in SCALED]
        self.layers = ["patch_embed", *inside, "norm"]
        self.widths = [widths.get(name.split(".", 2)[-1], backbone.dim) for name in self.layers]
        self.scale = nn.Parameter(torch.empty(sum(self.widths)).normal_(1, 0.02))  # γ
        self.shift = nn.Parameter(torch.empty(sum(self.widths)).normal_(0, 0.02))  # β

    def inject(self, training: bool = False) -> Injection:
        """What the backbone is given."""
        own = zip(self.scale.split(self.widths), self.shift.split(self.widths), strict=True)
        each = zip(self.layers, own, strict=True)
        return Injection(edits={layer: partial(_affine, *pair) for layer, pair in each})


def _affine(scale: Tensor, shift: Tensor, _: Tensor, out: Tensor) -> Tensor:
    return torch.addcmul(shift, out, scale)
