"""The batches of an epoch, in an order that depends only on the seed and the position."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from hashprompt.data.reading.image_stores import Prefetch
from hashprompt.data.streams.stream import TaskData
from hashprompt.engine.passes import Passes, uncounted
from hashprompt.engine.replicas import Replicas
from hashprompt.engine.seeding import seed_everything
from hashprompt.methods.base import Batch, Phase


@dataclass
class EpochBatches:
    """This device's share of the batches of an epoch.

    Args:
        phase: with the view, or with `draw`.
        data: the task.
        passes: views and frozen features.
        replicas: the devices.
        seeds: of the epoch: the run's seed, task, phase and epoch.
        resumed: the epoch began before, so the passes of `draw` are counted already.
    """

    phase: Phase
    data: TaskData
    passes: Passes
    replicas: Replicas
    seeds: tuple[int | str, ...]
    resumed: bool = False

    def __post_init__(self) -> None:
        phase, passes, train = self.phase, self.passes, self.data.train
        seed_everything(*self.seeds)
        self.rows: Sequence[Tensor]  # (B,) images of the task in each whole batch
        self._drawn: list[Batch] = []
        if phase.draw is not None:
            with uncounted(passes.backbone.model.passes) if self.resumed else nullcontext():
                self._drawn = phase.draw()
            self.rows = [torch.arange(len(batch.labels)) for batch in self._drawn]
            return
        chosen = torch.arange(len(train)) if phase.rows is None else phase.rows.cpu()
        self.rows = chosen[torch.randperm(len(chosen))].split(phase.batch_size)
        self._features = passes.plain_features(train) if phase.view == "features" else None
        self._images = Prefetch(train.images, [self.replicas.share(rows) for rows in self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, step: int) -> Batch:
        # Augmentation and other randomness in the step depend only on the position.
        seed_everything(*self.seeds, step, self.replicas.rank)
        if self._drawn:
            return self._drawn[step]
        rows = self.replicas.share(self.rows[step])
        device = self.passes.fabric.device
        labels = self.data.train.labels[rows].to(device)
        if self.phase.view == "features":
            assert self._features is not None
            return Batch(self._features[rows.to(self._features.device)], labels)
        images = self._images[step].to(device)
        views = [self.passes.see(images, self.phase.view) for _ in range(self.phase.views)]
        return Batch(torch.cat(views), labels)
