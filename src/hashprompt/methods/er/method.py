"""ER, experience replay: new images and stored ones in one batch.

Chaudhry et al., 2019: "On tiny episodic memories in continual learning".
"""

from dataclasses import replace

import torch
import torch.nn.functional as F

from hashprompt.methods.base import Batch, Losses, Phase, StepRecord, TaskView
from hashprompt.methods.er.config import ERConfig
from hashprompt.methods.frames.rehearsal import Rehearsal


class ER(Rehearsal[ERConfig]):
    """Cross-entropy over all classes, of new images and of as many from a reservoir."""

    def phases(self, task: TaskView) -> list[Phase]:
        (train,) = super().phases(task)
        return [replace(train, record=lambda seen: self.record(seen, task))]

    def losses(self, batch: Batch, task: TaskView) -> Losses:
        images, labels = batch.inputs, batch.labels
        if len(self.memory):
            stored = self.memory.draw(self.config.replays(len(labels)))
            images = torch.cat((images, task.see(stored.images)))  # a fresh view of raw pixels
            labels = torch.cat((labels, stored.labels))
        return {"ce": F.cross_entropy(self.logits(images), labels)}

    def record(self, seen: StepRecord, task: TaskView) -> None:
        """After a step of the first epoch: offer its new images to the reservoir."""
        if seen.epoch == 0:
            labels, rows = task.labels[seen.rows], seen.rows
            self.memory.offer(labels, lambda chosen: task.raw(rows[chosen]), task.index)
