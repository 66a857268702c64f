"""The ViT trained on new images and on images that are kept of old tasks."""

from dataclasses import replace

import torch

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, Losses, Phase, Seen, StepResult, TaskView
from hashprompt.methods.frames.configs.rehearsal import BufferOptions, RehearsalConfig
from hashprompt.methods.frames.full_finetuning import WholeTuning
from hashprompt.parts.memory import Memory, Remembered


def remembering(phase: Phase, memory: Memory, task: TaskView, every_epoch: bool = False) -> Phase:
    """The phase, which offers its images to the memory: once as they come, or in every epoch."""

    def record(seen: Seen) -> None:
        if every_epoch or seen.epoch == 0:
            labels, rows = task.labels[seen.rows], seen.rows
            memory.offer(labels, lambda i: task.raw(rows[i]), task.index, seen.outputs)

    return replace(phase, record=record)


def with_replay(batch: Batch, kept: Remembered, task: TaskView) -> Batch:
    """New images (B, 3, S, S), and behind them kept ones in their train view."""
    if not len(kept.labels):
        return batch
    images = torch.cat((batch.inputs, task.see(kept.images)))
    return Batch(images, torch.cat((batch.labels, kept.labels)))


def replaying(phase: Phase, memory: Memory, task: TaskView, config: BufferOptions) -> Phase:
    """The phase, whose steps see kept images behind the new ones."""
    step = phase.step
    assert step is not None

    def replay(batch: Batch) -> Losses | StepResult:
        kept = memory.draw(config.replays(len(batch.labels)))
        return step(with_replay(batch, kept, task))

    return replace(phase, step=replay)


class Rehearsal(WholeTuning):
    """New images and kept ones in each step, cross-entropy over all classes seen."""

    masked = False
    config: RehearsalConfig

    def __init__(self, config: RehearsalConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.memory = Memory(config.buffer_per_class, config.buffer_total)

    def images_stored(self) -> int:
        return len(self.memory)
