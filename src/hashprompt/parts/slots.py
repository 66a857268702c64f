"""What every task has of its own: the newest trains, the older ones are frozen."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hashprompt.parts.growing import grow_buffer


class TaskSlots(nn.Module):
    """One tensor per task.

    Args:
        shape: of the tensor of a task.
        init: fills a tensor of that shape in place, for a slot that does not copy the last one.
    """

    def __init__(self, shape: tuple[int, ...], init: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.fill = init
        self.current = nn.Parameter(torch.empty(shape))
        self.register_buffer("frozen", torch.empty(0, *shape))
        self.register_buffer("started", torch.tensor(False))
        self.frozen: Tensor
        self.started: Tensor

    @property
    def tasks(self) -> int:
        return len(self.frozen) + int(self.started)

    def resize(self, shape: tuple[int, ...]) -> None:
        """Before the first task: the shape, if it was not known earlier."""
        self.current = nn.Parameter(self.current.new_empty(shape))
        self.frozen = self.frozen.new_empty(0, *shape)

    def add(self, copy_last: bool) -> None:
        """Freeze the current slot and start that of the next task, as a copy or fresh."""
        if self.started:
            grow_buffer(self, "frozen", self.current.detach()[None].clone())
        if not self.started or not copy_last:
            fresh = torch.empty_like(self.current)
            self.fill(fresh)
            self.current.data.copy_(fresh)
        self.started = torch.ones_like(self.started)

    def stacked(self) -> Tensor:
        """All slots, (T, …); only the newest has a gradient."""
        return torch.cat((self.frozen, self.current[None]))

    def of(self, task: Tensor | None, count: int) -> Tensor:
        """The slots (B, …) of images of the tasks (B,); the newest for `count` images if None."""
        if task is None:
            return self.current.expand(count, *self.current.shape)
        return self.stacked()[task]

    def numbers(self) -> int:
        """How many numbers all slots hold."""
        return self.tasks * self.current.numel()


def uniform(bound: float) -> Callable[[Tensor], Tensor]:
    """Fills with U(−bound, bound)."""
    return between(-bound, bound)


def between(low: float, high: float) -> Callable[[Tensor], Tensor]:
    """Fills with U(low, high)."""
    return lambda tensor: tensor.uniform_(low, high)
