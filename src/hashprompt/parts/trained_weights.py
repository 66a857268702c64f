"""A ViT that learns: its weights as part of a method's state; the original stays as it is."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.errors import UserError
from hashprompt.parts.budget import check_room
from hashprompt.parts.variants import Trainable

# Numbers of memory for a weight that trains: itself, its gradient and Adam's two moments. As
# `check_room` leaves half of the memory, there is room for a teacher as well.
COPIES = 4


class Snapshot(nn.Module):
    """Values of parameters by name, as they were: a teacher, an anchor, a mean of squares.

    It holds no numbers until the first is taken, so it costs nothing before.

    Args:
        values: of which names and widths matter; rows may come later.
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = list(values)
        for name, value in values.items():
            self.register_buffer(stored_name(name), value.detach().new_zeros(0, *value.shape[1:]))

    @property
    def taken(self) -> bool:
        """Whether there is anything in it."""
        return any(len(value) for value in self.tensors().values())

    def take(self, values: Mapping[str, Tensor]) -> None:
        """Copy values."""
        for name in self.names:
            setattr(self, stored_name(name), values[name].detach().clone())

    def clear(self) -> None:
        """Drop the values."""
        for name, value in self.tensors().items():
            setattr(self, stored_name(name), value[:0])

    def tensors(self) -> dict[str, Tensor]:
        """The values by name."""
        return {name: getattr(self, stored_name(name)) for name in self.names}


class TrainedWeights(nn.Module):
    """A copy of weights of the ViT that trains.

    Args:
        which: all weights, those of the last blocks and the final norm, all norms, `biases` (norms,
            biases and the class token), or none (`head`: only the head trains).
        blocks: how many `last` ones.
    """

    def __init__(self, backbone: Backbone, which: Trainable = "all", blocks: int = 1) -> None:
        super().__init__()
        if which == "last" and blocks > backbone.depth:
            raise UserError(f"{blocks} last blocks to train: this backbone has {backbone.depth}.")
        first = backbone.depth - blocks
        chosen = {
            name: parameter
            for name, parameter in backbone.vit.named_parameters()
            if not name.startswith("head.") and _is_chosen(name, which, first)
        }
        numbers = sum(parameter.numel() for parameter in chosen.values())
        check_room(COPIES * numbers, f"Training {numbers:,} weights of the backbone")
        self.names = list(chosen)
        for name, parameter in chosen.items():
            self.register_parameter(stored_name(name), nn.Parameter(parameter.detach().clone()))

    def tensors(self) -> dict[str, nn.Parameter]:
        """The values by timm's name, for `Injection.weights`."""
        return {name: getattr(self, stored_name(name)) for name in self.names}

    @torch.no_grad()
    def reset(self, values: Mapping[str, Tensor]) -> None:
        """Take over values, e.g. of `backbone.vit.named_parameters()`."""
        for name, held in self.tensors().items():
            held.copy_(values[name])


def stored_name(name: str) -> str:
    """A parameter's name as that of an attribute: torch allows no dot within one."""
    return name.replace(".", "/")


def _is_chosen(name: str, which: Trainable, first: int) -> bool:
    path = name.split(".")
    if which == "last":
        return path[0] == "norm" or (path[0] == "blocks" and int(path[1]) >= first)
    if which == "biases":
        return "norm" in name or path[-1] == "bias" or name == "cls_token"
    return which == "all" or (which == "norms" and "norm" in name)
