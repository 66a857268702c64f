"""The ViT trained on new images and on kept images of old tasks."""

import torch

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, StepRecord, TaskView
from hashprompt.methods.frames.full_finetuning import FullFinetuning
from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.parts.memory import Memory, StoredImages


def with_kept(batch: Batch, kept: StoredImages, task: TaskView) -> Batch:
    """New images (B, 3, S, S), and behind them kept ones in their train view."""
    if not len(kept.labels):
        return batch
    images = torch.cat((batch.inputs, task.see(kept.images)))
    return Batch(images, torch.cat((batch.labels, kept.labels)))


def offer(memory: Memory, seen: StepRecord, task: TaskView) -> None:
    """Offer the images of a step, and its outputs, to a memory."""
    labels, rows = task.labels[seen.rows], seen.rows
    memory.offer(labels, lambda chosen: task.raw(rows[chosen]), task.index, seen.outputs)


class Rehearsal(FullFinetuning):
    """ViT and head with a memory of images, cross-entropy over all classes seen."""

    masked = False
    config: RehearsalConfig

    def __init__(self, config: RehearsalConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.memory = Memory(config.buffer_per_class, config.buffer_total)

    def images_stored(self) -> int:
        return len(self.memory)
