"""GDumb: store equally many images of each class, and train from scratch on them only.

Prabhu et al., ECCV 2020. Only stored images are used for training, and only they are carried from
task to task: a baseline for everything else in continual learning.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, Phase, TaskView
from hashprompt.methods.frames.rehearsal import Rehearsal
from hashprompt.methods.gdumb.config import GDumbConfig
from hashprompt.methods.gdumb.cut_mix import cut_mix
from hashprompt.parts.memory import Memory

CUTMIX_CHANCE = 0.5


class GDumb(Rehearsal[GDumbConfig]):
    """A greedy balanced memory; pretrained weights and a new head fitted to it after each task."""

    def __init__(self, config: GDumbConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.memory = Memory(config.buffer_per_class, config.buffer_total, "balanced")

    def begin_task(self, task: TaskView) -> None:
        self.head = self.head.restarted(max(task.classes) + 1)
        self.vit.reset(dict(self.backbone.vit.named_parameters()))

    def phases(self, task: TaskView) -> list[Phase]:
        (train,) = super().phases(task)
        fit = replace(
            train, name="fit", draw=self.memory_batches, step=lambda b: self.fit_step(b, task)
        )
        return [Phase("collect", work=lambda: self.collect(task)), fit]

    def collect(self, task: TaskView) -> None:
        """Offer the images of the task, in random order."""
        order = torch.randperm(len(task.labels)).to(task.labels.device)
        self.memory.offer(task.labels[order], lambda i: task.raw(order[i]), task.index)

    def fit_step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        images, labels = task.see(self.memory.images[batch.inputs]), batch.labels
        if not self.config.cutmix or torch.rand(()) >= CUTMIX_CHANCE:
            return {"ce": F.cross_entropy(self.logits(images), labels)}
        mixed, other, share = cut_mix(images, self.config.cutmix)
        logits = self.logits(mixed)
        both = (F.cross_entropy(logits, labels), F.cross_entropy(logits, labels[other]))
        return {"ce": share * both[0] + (1 - share) * both[1]}
