"""The ViT trained on new images and on stored images of old tasks."""

from typing import TypeVar

import torch
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, StepRecord, TaskView
from hashprompt.methods.frames.full_finetuning import FullFinetuning
from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.parts.memory import Memory


def with_stored(
    batch: Batch, memory: Memory, count: int, task: TaskView, among: Tensor | None = None
) -> Batch:
    """New images (B, 3, S, S), followed by an augmented view of stored ones (of some rows)."""
    stored = memory.draw(count, among)
    if not len(stored.labels):
        return batch
    images = torch.cat((batch.inputs, task.see(stored.images)))
    return Batch(images, torch.cat((batch.labels, stored.labels)))


def offer(memory: Memory, record: StepRecord, task: TaskView, once: bool = False) -> None:
    """Offer the images of a step, and its outputs, to a memory; `once`: of the first epoch only."""
    if once and record.epoch:
        return
    labels, rows = task.labels[record.rows], record.rows
    memory.offer(labels, lambda chosen: task.raw(rows[chosen]), task.index, record.outputs)


C = TypeVar("C", bound=RehearsalConfig)


class Rehearsal(FullFinetuning[C]):
    """ViT and head with a memory of images, cross-entropy over all classes seen."""

    masked = False

    def __init__(self, config: C, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.memory = Memory(config.buffer_per_class, config.buffer_total)

    def memory_batches(self) -> list[Batch]:
        """All rows (B,) of the memory in random order; their pixels are read in the step."""
        order = torch.randperm(len(self.memory)).to(self.memory.labels.device)
        return [Batch(r, self.memory.labels[r]) for r in order.split(self.config.batch_size)]
