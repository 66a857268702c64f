"""What every task or class has: the newest train, the older ones are frozen."""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.precision import capable


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
        self.frozen: Tensor = nn.Buffer(torch.empty(0, *shape))
        self.started: Tensor = nn.Buffer(torch.tensor(False))

    @property
    def tasks(self) -> int:
        return len(self.frozen) + int(self.started)

    def add(self, copy_last: bool) -> None:
        """Freeze the current slot and start that of the next task, as a copy or fresh."""
        if self.started:
            grow_buffer(self, "frozen", self.current.detach()[None].clone())
        if not self.started or not copy_last:
            fresh = torch.empty_like(self.current)
            self.fill(fresh)
            with torch.no_grad():
                self.current.copy_(fresh)
        self.started = torch.ones_like(self.started)

    def newest(self) -> Tensor:
        """The slot of the newest task, with a gradient."""
        return self.current

    def stacked(self) -> Tensor:
        """All slots, (T, …); only the newest has a gradient."""
        return torch.cat((self.frozen, self.newest()[None]))

    def of(self, task: Tensor | None, count: int) -> Tensor:
        """The slots (B, …) of images of the tasks (B,); the newest for `count` images if None."""
        if task is None:
            return self.newest().expand(count, *self.current.shape)
        return self.stacked()[task]


def uniform(bound: float) -> Callable[[Tensor], Tensor]:
    """Fills with U(−bound, bound)."""
    return between(-bound, bound)


def between(low: float, high: float) -> Callable[[Tensor], Tensor]:
    """Fills with U(low, high)."""
    return lambda tensor: tensor.uniform_(low, high)


class OrthogonalSlots(TaskSlots):
    """For each task and each of G groups n vectors; the newest train, the older ones are frozen.

    Args:
        groups: G; vectors of different groups have nothing to do with each other.
        count: n.
        shape: of a vector; it counts as one, however many axes it has.
    """

    def __init__(self, groups: int, count: int, *shape: int) -> None:
        super().__init__((groups, count, *shape), self._start)

    def _start(self, fresh: Tensor) -> None:
        earlier = by_group(self.frozen).flatten(2)
        fresh.copy_(orthogonal_to(earlier, fresh.shape[1]).view_as(fresh))

    def joined(self) -> Tensor:
        """The vectors of all tasks, (G, T · n, …); only the newest have a gradient."""
        return by_group(self.stacked())


def by_group(slots: Tensor) -> Tensor:
    """(T, G, n, …) -> (G, T · n, …)."""
    return slots.transpose(0, 1).flatten(1, 2)


def orthogonal_to(earlier: Tensor, count: int) -> Tensor:
    """Random unit vectors, orthogonal to the earlier ones and to each other (Gram–Schmidt).

    The earlier ones were trained, so they need not be orthogonal among themselves: what is taken
    out of a new vector is its projection on their span, not one projection after the other.

    Space has room for D such vectors. When it is full, learning must continue, so the vectors
    beyond that number are random unit vectors.

    Args:
        earlier: (G, M, D), for each of G groups.
        count: n.

    Returns:
        (G, n, D).
    """
    groups, taken, dim = earlier.shape
    fresh = torch.randn(groups, count, dim, device=earlier.device, dtype=earlier.dtype)
    room = min(count, max(0, dim - taken))
    rows = torch.cat((earlier, fresh[:, :room]), dim=1)
    q, r = (x.to(rows) for x in torch.linalg.qr(capable(rows).mT))
    # A factorisation may flip signs; Gram–Schmidt does not.
    signs = r.diagonal(dim1=1, dim2=2).sign()
    orthogonal = (q * signs[:, None]).mT[:, taken:]
    return torch.cat((orthogonal, F.normalize(fresh[:, room:], dim=2)), dim=1)


def orthogonality_penalty(vectors: Tensor) -> Tensor:
    """‖V Vᵀ − I‖² as a mean over pairs, summed over groups; V is (G, M, D)."""
    eye = torch.eye(vectors.shape[1], device=vectors.device)
    return (vectors @ vectors.mT - eye).square().mean((1, 2)).sum()


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
            with torch.no_grad():
                self.current.copy_(self.newest())  # what was trained is what is kept
        super().add(copy_last)

    def newest(self) -> Tensor:
        """p_t of the newest task, (blocks, 2, L, D)."""
        m = self.momentum
        if not len(self.frozen) or not m:
            return self.current
        return (1 - m) * self.current + m * self.frozen.mean(0)


class ClassRows(nn.Module):
    """One tensor per class. Unlike slots of tasks, tasks may differ in their number of classes.

    Args:
        shape: of the tensor of a class.
    """

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.current = nn.Parameter(torch.empty(0, *shape))
        self.frozen: Tensor = nn.Buffer(torch.empty(0, *shape))

    def add(self, rows: Tensor) -> None:
        """Freeze the rows of the last task; those of the next one start as `rows` (C_t, …)."""
        grow_buffer(self, "frozen", self.current.detach())
        self.current = nn.Parameter(rows.to(self.frozen))

    def joined(self) -> Tensor:
        """The rows of all classes, (C, …); only those of the current task have a gradient."""
        return torch.cat((self.frozen, self.current))


class TaskClassifiers(nn.Module):
    """A linear classifier for each task, side by side; only the newest trains.

    Args:
        dim: D, input width.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = ClassRows(dim)
        self.bias = ClassRows()

    def add(self, classes: int) -> None:
        """Start the classifier of a task with so many classes."""
        dim = self.weight.frozen.shape[1]
        bound = math.sqrt(3 / dim)  # variance 1/D
        self.weight.add(torch.empty(classes, dim).uniform_(-bound, bound))
        self.bias.add(torch.zeros(classes))

    def current(self) -> list[nn.Parameter]:
        """Weight and bias of the newest classifier."""
        return [self.weight.current, self.bias.current]

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C) over the classes of all tasks."""
        return F.linear(features, self.weight.joined(), self.bias.joined())
