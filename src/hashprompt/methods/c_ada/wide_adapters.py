"""Adapters that grow in width: every task adds hidden units, those of older tasks are frozen."""

import torch
from torch import Tensor, nn

from hashprompt.parts.slots import TaskSlots, uniform


class WideningAdapters(nn.Module):
    """Σ_i ReLU(z W_down^i) W_up^i over tasks i, without biases.

    ReLU treats hidden units one by one, so the sum is one branch whose width is that of all tasks.

    Args:
        places: branches, P.
        dim: D, width of the tokens.
        width: h, hidden units that a task adds to each.
    """

    def __init__(self, places: int, dim: int, width: int) -> None:
        super().__init__()
        self.down = TaskSlots((places, dim, width), uniform(dim**-0.5))
        self.up = TaskSlots((places, width, dim), torch.zero_)  # new units start silent

    def add(self) -> None:
        """Freeze the units of the last task and start those of the next."""
        for slots in (self.down, self.up):
            slots.add(copy_last=False)

    def current(self) -> list[nn.Parameter]:
        """What trains."""
        return [self.down.current, self.up.current]

    def joined(self) -> tuple[Tensor, Tensor]:
        """W_down (P, D, T · h) and W_up (P, T · h, D) of all tasks; only the newest train."""
        down = self.down.stacked().permute(1, 2, 0, 3).flatten(2)
        return down, self.up.stacked().transpose(0, 1).flatten(1, 2)

    def overlap(self) -> Tensor:
        """Σ ‖W_downᵀ W_down^i‖² + ‖W_up W_up^iᵀ‖² over places and older tasks i: a scalar."""
        down = torch.einsum("pdh,tpdk->tphk", self.down.current, self.down.frozen)
        up = torch.einsum("phd,tpkd->tphk", self.up.current, self.up.frozen)
        return down.square().sum() + up.square().sum()
