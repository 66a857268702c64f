"""A network trained on each task, and a head of all classes aligned with pseudo-features.

The raw head goes on learning; a copy of it is aligned after each task and gives the answers. A
member of this family says what is trained, and what happens to the pseudo-features.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, ParamGroup, Phase, Prediction, TaskView
from hashprompt.methods.frames.full_finetuning import FullFinetuning
from hashprompt.methods.frames.options import AlignedConfig
from hashprompt.parts.alignment import shuffled_batches
from hashprompt.parts.cells import Cells
from hashprompt.parts.gaussians import (
    ClassGaussians,
    GaussianSampler,
    StoredClasses,
    stored_classes,
)
from hashprompt.parts.heads import GrowingLinear, output_mask


class AlignedTuning(FullFinetuning):
    """Training on the task, Gaussians of its classes, alignment of a copy of the head."""

    keeps: tuple[str, ...] = ("cells.",)
    stores = "head: aligned; statistics: gaussians"
    align_first: ClassVar[bool] = False  # whether there is anything to align after one task
    jitter: float = 0.0  # of pseudo-features, see `ClassGaussians.sampler`
    config: AlignedConfig

    def __init__(self, config: AlignedConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.cells = Cells()
        self.gaussians = ClassGaussians(backbone.dim, "covariance")
        self.aligned = GrowingLinear(backbone.dim)

    # What a member of the family adds. -----------------------------------------------------

    def shaped(self, features: Tensor, cells: Tensor) -> Tensor:
        """What the head sees of pseudo-features (B, D) of cells (B,)."""
        return features

    def align_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What alignment minimises, of logits (B, C) of pseudo-features."""
        raise NotImplementedError

    def align_batch(self) -> int:
        """Pseudo-features of a step."""
        return self.config.align_samples

    # The frame. ----------------------------------------------------------------------------

    def allowed(self, classes: tuple[int, ...]) -> Tensor:
        """Outputs of the head that are these classes, (C,) bool."""
        return output_mask(classes, len(self.head.bias)).to(self.device)

    def begin_task(self, task: TaskView) -> None:
        self.cells.add(task.index, task.classes)
        self.cells.to(self.device)
        self.head.grow(self.cells.classes)
        self.aligned.grow(self.cells.classes)

    def phases(self, task: TaskView) -> list[Phase]:
        train = replace(super().phases(task)[0], update=rows_alone(self.head, task.classes))
        describe = Phase("statistics", work=lambda: self.describe(task))
        aligns = task.index > 0 or self.align_first
        return [train, describe, *([self.alignment()] if aligns else [])]

    @torch.no_grad()
    def describe(self, task: TaskView) -> None:
        """Gaussians of the new classes; the copy of the head starts again from the raw one."""
        self.gaussians.add(task.map(self.features), task.labels, task.classes)
        for copy, raw in zip(self.aligned.parameters(), self.head.parameters(), strict=True):
            copy.copy_(raw)

    def alignment(self) -> Phase:
        """Training of the copy on pseudo-features of all cells."""
        config, labels = self.config, self.cells.label

        @cache  # the factors serve all epochs; made on first use, when the statistics are there
        def sampler() -> GaussianSampler:
            return self.gaussians.sampler(labels, self.jitter)

        def draw() -> list[Batch]:
            features, cells = sampler().draw(config.align_samples)
            features = self.shaped(features, cells)
            return [
                Batch(*rows)
                for rows in shuffled_batches(features, labels[cells], self.align_batch())
            ]

        parameters = tuple(self.aligned.parameters())
        return Phase(
            "align",
            step=lambda b: {"align": self.align_loss(self.aligned(b.inputs), b.labels)},
            groups=[ParamGroup(parameters, config.align_lr, config.align_weight_decay)],
            epochs=config.align_epochs,
            draw=draw,
            optimizer="sgd",
            schedule="cosine",
        )

    def stored_classes(self, task: int) -> StoredClasses:
        return stored_classes(self.gaussians, self.cells, task)

    def current_features(self, images: Tensor, task: int) -> Tensor:
        return self.features(images)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self.aligned(self.features(images)))


def rows_alone(head: GrowingLinear, classes: tuple[int, ...]) -> Callable[[Any], Any]:
    """For `Phase.update`: steps that leave the other rows of a head, which decay would change."""

    @contextmanager
    def around(_: Any) -> Iterator[None]:
        before = [parameter.detach().clone() for parameter in head.parameters()]
        yield
        others = ~output_mask(classes, len(head.bias)).to(head.bias.device)
        with torch.no_grad():
            for parameter, old in zip(head.parameters(), before, strict=True):
                parameter[others] = old[others]

    return around
