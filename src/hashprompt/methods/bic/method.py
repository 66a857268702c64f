"""BiC, bias correction: distillation with stored images, then two numbers for the new classes.

Wu et al., CVPR 2019: "Large scale incremental learning". The head leans towards classes of which it
saw many images; a scale and a shift of their logits, fitted to held-out images of old and new
classes alike, take that back. Where no class is new there is nothing to correct.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, Phase, TaskView
from hashprompt.methods.bic.config import BiCConfig
from hashprompt.methods.frames.rehearsal import Rehearsal, with_stored
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.precision import exact

# Without a penalty, perfectly separable images would let the scale grow without bound.
DECAY = 1e-4


class BiC(Rehearsal[BiCConfig]):
    """(1 − λ)·CE + λ·KD, λ the share of old classes; the teacher is the corrected previous network.

    In the memory the first images of each class are the held-out ones: when it loses places, the
    last go first, so an image that was trained on is never held out later.
    """

    stores = "backbone: teacher; head: correction"
    teaches = True

    def __init__(self, config: BiCConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.correction: Tensor = nn.Buffer(torch.zeros(0, 2))  # (T, 2) α and β of each task
        # (C,) in which a class was new
        self.task_of_class: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.long))
        # (n,) images of the task in hand that do not train
        self.held_out: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.long))

    def logits(self, images: Tensor, network: Mapping[str, Tensor] | None = None) -> Tensor:
        """Corrected, (B, C)."""
        logits = super().logits(images, network)
        scale, shift = self.correction[self.task_of_class[: logits.shape[1]]].T
        return scale * logits + shift

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        new = len(self.head.bias) - len(self.task_of_class)
        grow_buffer(self, "correction", torch.tensor([[1.0, 0.0]]))
        grow_buffer(self, "task_of_class", torch.full((new,), task.index))
        order = torch.randperm(len(task.labels)).to(task.labels.device)
        # Also in the first task: new classes may follow.
        self.held_out = self._first(order, task.labels) if new else order[:0]

    def phases(self, task: TaskView) -> list[Phase]:
        (train,) = super().phases(task)
        train = replace(train, rows=_others(self.held_out, len(task.labels)))
        correct = Phase("correct", work=lambda: self.correct(task))
        return [train, correct, Phase("memory", work=lambda: self.remember(task))]

    # First stage. --------------------------------------------------------------------------

    def losses(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        trained = _others(self._validation(task), len(self.memory))
        count = self.config.replays(len(batch.labels))
        images, labels = with_stored(batch, self.memory, count, task, trained)
        logits = self.logits(images)
        ce = self.cross_entropy(logits, labels, task)
        if not self.teacher.taken:
            return {"ce": ce}
        with torch.no_grad():
            taught = self.logits(images, self.teacher.tensors())
            target = (taught / self.config.temperature).softmax(1)
        known = logits[:, : target.shape[1]] / self.config.temperature
        weight = self.old_share(task)
        return {"ce": (1 - weight) * ce, "kd": weight * F.cross_entropy(known, target)}

    def old_share(self, task: TaskView) -> float:
        """λ: of the classes; where none is new, of the tasks."""
        old, seen = self._old_classes(task), len(self.head.bias)
        return old / seen if old < seen else task.index / (task.index + 1)

    def _old_classes(self, task: TaskView) -> int:
        return int((self.task_of_class < task.index).sum())

    # Second stage. -------------------------------------------------------------------------

    @torch.no_grad()
    def correct(self, task: TaskView) -> None:
        """Fit the task's scale and shift to held-out images of old and new classes."""
        held = self.memory.rows(self._validation(task))
        if not len(held.labels):
            return
        images = torch.cat((held.images, task.raw(self.held_out)))
        labels = torch.cat((held.labels, task.labels[self.held_out]))
        parts = images.split(self.config.batch_size)
        logits = torch.cat([self.logits(task.see(part, "clean")) for part in parts])
        self.correction[-1] = fit_scale_and_shift(logits, labels, self.task_of_class == task.index)

    def remember(self, task: TaskView) -> None:
        """Keep random images, held-out ones first."""
        others = _others(self.held_out, len(task.labels))
        order = torch.cat((self.held_out, others[torch.randperm(len(others)).to(others.device)]))
        self.memory.keep(task.labels, task.raw, task.index, order)

    def _validation(self, task: TaskView) -> Tensor:
        """Rows of the memory that are held out while this task is learned."""
        rows = torch.arange(len(self.memory), device=self.memory.labels.device)
        needed = 0 < self._old_classes(task) < len(self.head.bias)
        return self._first(rows, self.memory.labels) if needed else rows[:0]

    def _first(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The first of each class among rows, a share of the images it has in the memory."""
        most = self.config.buffer_per_class
        if self.config.buffer_total:
            most = -(-self.config.buffer_total // len(self.head.bias))
        chosen = []
        for label in labels.unique():
            own = rows[labels[rows] == label]
            count = math.ceil(self.config.held_out * min(most, len(own)))
            chosen.append(own[: min(count, len(own) - 1)])  # one at least trains
        return torch.cat(chosen) if chosen else rows[:0]


def _others(rows: Tensor, count: int) -> Tensor:
    """Those of `count` rows that are not among these, in their order."""
    left = torch.ones(count, dtype=torch.bool, device=rows.device)
    left[rows] = False
    return left.nonzero()[:, 0]


@torch.enable_grad()
def fit_scale_and_shift(logits: Tensor, labels: Tensor, moved: Tensor) -> Tensor:
    """(α, β) with which α·z + β of some outputs makes the cross-entropy least.

    It is convex, so it is solved, not trained.

    Args:
        logits: (N, C).
        labels: (N,).
        moved: (C,) bool, the outputs that are corrected.
    """
    z = exact(logits.detach())
    start = torch.tensor([1.0, 0.0]).to(z)
    y, moved = labels.to(z.device), moved.to(z.device)
    pair = start.clone().requires_grad_()
    solver = torch.optim.LBFGS(
        [pair],
        max_iter=200,
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def loss() -> float:
        solver.zero_grad()
        corrected = torch.where(moved, pair[0] * z + pair[1], z)
        value = F.cross_entropy(corrected, y) + DECAY * (pair - start).square().sum()
        value.backward()
        return float(value.detach())

    solver.step(loss)
    return pair.detach().to(logits)
