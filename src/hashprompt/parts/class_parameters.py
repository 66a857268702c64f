"""What every class has of its own: the classes of the current task train, older ones are frozen."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.parts.growing import grow_buffer


class ClassRows(nn.Module):
    """One tensor per class. Unlike slots of tasks, tasks may differ in their number of classes.

    Args:
        shape: of the tensor of a class.
    """

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.current = nn.Parameter(torch.empty(0, *shape))
        self.register_buffer("frozen", torch.empty(0, *shape))
        self.frozen: Tensor

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

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C) over the classes of all tasks."""
        return F.linear(features, self.weight.joined(), self.bias.joined())

    def numbers(self) -> int:
        """How many numbers all classifiers hold."""
        return self.weight.joined().numel() + self.bias.joined().numel()
