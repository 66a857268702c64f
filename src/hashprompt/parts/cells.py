"""Which (task, class) pairs have been learned, in the order they came."""

from typing import Literal

import torch
from torch import Tensor, nn

from hashprompt.parts.growing import grow_buffer


class Cells(nn.Module):
    """M cells: the task and the class of each. One cell per class in class-incremental streams."""

    def __init__(self) -> None:
        super().__init__()
        self.task: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.int64))
        self.label: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.int64))

    def add(self, task: int, classes: tuple[int, ...]) -> None:
        grow_buffer(self, "task", torch.full((len(classes),), task))
        grow_buffer(self, "label", torch.tensor(classes))

    @property
    def classes(self) -> int:
        """Number of classes seen."""
        return int(self.label.max()) + 1 if len(self.label) else 0

    def of(self, labels: Tensor, task: int) -> Tensor:
        """Cells (B,) of images of one task, from their labels (B,)."""
        lookup = torch.zeros(self.classes, dtype=torch.int64, device=labels.device)
        own = (self.task == task).nonzero()[:, 0]
        lookup[self.label[own]] = own
        return lookup[labels]

    def task_of_class(self) -> Tensor:
        """(C,) the last task of each class."""
        found = self.task.new_zeros(self.classes)
        return found.scatter_reduce(0, self.label, self.task, "amax", include_self=False)

    def to_classes(self, cell_scores: Tensor, how: Literal["amax", "mean"] = "amax") -> Tensor:
        """Log scores of cells (B, M) -> of classes (B, C): the maximum or the mean of its cells."""
        out = cell_scores.new_full((cell_scores.shape[0], self.classes), -torch.inf)
        index = self.label.expand_as(cell_scores)
        return out.scatter_reduce(1, index, cell_scores, how, include_self=how == "amax")
