"""A prompt of its own for every task."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hashprompt.parts.legacy import prefixes
from hashprompt.parts.slots import TaskSlots


class TaskPrompts(TaskSlots):
    """Keys and values for some blocks, (blocks, 2, L, D) per task.

    With momentum m the prompt of a task is p_t = (1 − m)·e_t + m · mean of the prompts before it,
    where e_t is what is trained. Once the task is over, p_t is what is kept.

    Args:
        blocks: that are prompted, from 0.
        length: L.
        dim: D.
        init: fills the first prompt in place; later ones start as a copy of the last.
        momentum: m.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        length: int,
        dim: int,
        init: Callable[[Tensor], object],
        momentum: float = 0.0,
    ) -> None:
        super().__init__((len(blocks), 2, length, dim), init)
        self.blocks, self.momentum = blocks, momentum

    def add(self, copy_last: bool = True) -> None:
        if self.started:
            self.current.data.copy_(self._mixed().detach())  # what was trained is what is kept
        super().add(copy_last)

    def select(self, tasks: Tensor) -> None:
        super().select(tasks)
        if len(self.frozen) and self.momentum:  # e_t, such that p_t stays
            m = self.momentum
            self.current.data = (self.current.data - m * self.frozen.mean(0)) / (1 - m)

    def _mixed(self) -> Tensor:
        """p_t of the newest task, (blocks, 2, L, D)."""
        m = self.momentum
        if not len(self.frozen) or not m:
            return self.current
        return (1 - m) * self.current + m * self.frozen.mean(0)

    def stacked(self) -> Tensor:
        return torch.cat((self.frozen, self._mixed()[None]))

    def of(self, task: Tensor | None, count: int) -> Tensor:
        if task is None:
            return self._mixed().expand(count, *self.current.shape)
        return self.stacked()[task]

    def prefixes(self, task: Tensor | None, count: int, public_layout: bool) -> dict[int, Tensor]:
        """Block -> prefixes (B, 2, L, D) of images; `task` and `count` as in :meth:`of`."""
        return prefixes(self.of(task, count), self.blocks, public_layout)
