"""A network trained on each task, and a head of all classes aligned with pseudo-features.

The raw head is trained on; a copy of it is aligned after each task and used for predictions. A
method of this frame defines what is trained, and how pseudo-features are changed.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, ParamGroup, Phase, Prediction, TaskView
from hashprompt.methods.frames.full_finetuning import FullFinetuning
from hashprompt.methods.frames.options import AlignedConfig
from hashprompt.parts.cells import Cells
from hashprompt.parts.gaussians import ClassGaussians, GaussianSampler, StoredClasses
from hashprompt.parts.heads import GrowingLinear


def alignment_phase(
    name: str,
    gaussians: ClassGaussians,
    classes: Tensor,
    group: ParamGroup,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    samples: int,
    epochs: int,
    target: Tensor | None = None,
    shaped: Callable[[Tensor, Tensor], Tensor] = lambda features, _: features,
    jitter: float = 0.0,
    batch_size: int | None = None,
    batches: int | None = None,
    **changes: Any,
) -> Phase:
    """Training of a head on pseudo-features of the Gaussians of all classes seen.

    Args:
        classes: (M,) class of each Gaussian.
        loss: of pseudo-features (B, D) and their targets (B,).
        samples: pseudo-features of each Gaussian in an epoch.
        target: (M,) label of each Gaussian; default: its class.
        shaped: changes pseudo-features (B, D) of cells (B,).
        jitter: see `GaussianSampler`.
        batch_size: default: samples.
        batches: of an epoch; default: all pseudo-features.
        changes: fields of the phase other than SGD with a cosine.
    """
    target, size = classes if target is None else target, batch_size or samples

    @cache  # one factorisation for all epochs, made on first use, when the statistics are there
    def sampler() -> GaussianSampler:
        return GaussianSampler(gaussians, classes, jitter)

    def draw() -> list[Batch]:
        features, cells = sampler().draw(samples)
        features = shaped(features, cells)
        order = torch.randperm(len(cells), device=features.device)
        rows = order[: None if batches is None else batches * size].split(size)
        return [Batch(features[r], target[cells[r]]) for r in rows]

    def step(batch: Batch) -> dict[str, Tensor]:
        return {name: loss(batch.inputs, batch.labels)}

    own = {"optimizer": "sgd", "schedule": "cosine", **changes}
    return Phase(name, step=step, groups=[group], epochs=epochs, draw=draw, **own)


C = TypeVar("C", bound=AlignedConfig)


class AlignedTuning(FullFinetuning[C]):
    """Training on the task, Gaussians of its classes, alignment of a copy of the head."""

    keeps: tuple[str, ...] = ("cells.",)
    stores = "head: aligned; statistics: gaussians"

    def __init__(self, config: C, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.cells = Cells()
        self.gaussians = ClassGaussians(backbone.dim, "covariance")
        self.aligned = GrowingLinear(backbone.dim)

    # Defined by each method. ---------------------------------------------------------------

    def shaped(self, features: Tensor, cells: Tensor) -> Tensor:
        """Input of the head for pseudo-features (B, D) of cells (B,)."""
        return features

    def align_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Loss of alignment, of logits (B, C) of pseudo-features."""
        return normalised_cross_entropy(logits, labels, self.cells.task_of_class())

    # The frame. ----------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        self.cells.add(task.index, task.classes)
        self.head.grow(self.cells.classes)
        self.aligned.grow(self.cells.classes)

    def phases(self, task: TaskView) -> list[Phase]:
        train = replace(super().phases(task)[0], update=keep_other_rows(self.head, task.classes))
        describe = Phase("statistics", work=lambda: self.describe(task))
        return [train, describe, *([self.alignment()] if task.index else [])]

    @torch.no_grad()
    def describe(self, task: TaskView) -> None:
        """Gaussians of the new classes; the copy of the head starts again from the raw one."""
        self.gaussians.add(task.map(self.features), task.labels, task.classes)
        for copy, raw in zip(self.aligned.parameters(), self.head.parameters(), strict=True):
            copy.copy_(raw)

    def alignment(self, **changes: Any) -> Phase:
        """Training of the copy on pseudo-features of all cells.

        Args:
            changes: arguments of `alignment_phase` that differ.
        """
        config = self.config
        return alignment_phase(
            "align",
            self.gaussians,
            self.cells.label,
            ParamGroup(self.aligned.parameters(), config.align_lr, config.align_weight_decay),
            lambda features, labels: self.align_loss(self.aligned(features), labels),
            shaped=self.shaped,
            samples=config.align_samples,
            epochs=config.align_epochs,
            **changes,
        )

    def stored_classes(self, task: int) -> StoredClasses:
        return self.gaussians.stored_classes(self.cells, task)

    def current_features(self, images: Tensor, task: int) -> Tensor:
        return self.features(images)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self.aligned(self.features(images)))


def keep_other_rows(head: GrowingLinear, classes: tuple[int, ...]) -> Callable[[Any], Any]:
    """For `Phase.update`: steps that do not change other rows of a head, as decay would."""

    @contextmanager
    def around(_: Any) -> Iterator[None]:
        before = [parameter.detach().clone() for parameter in head.parameters()]
        yield
        others = ~head.mask(classes)
        with torch.no_grad():
            for parameter, old in zip(head.parameters(), before, strict=True):
                parameter[others] = old[others]

    return around


TEMPERATURE = 0.1  # of normalised logits
MIN_LABEL = 1e-4  # log 0 of a label that is not the image's, in the reverse cross-entropy


def symmetric_cross_entropy(
    logits: Tensor, labels: Tensor, allowed: Tensor, forward: float, reverse: float
) -> Tensor:
    """forward · CE(label, p) + reverse · CE(p, label).

    The reverse is −Σ p_k log(label_k), in which log 0 counts as log 1e-4: that is
    −log(1e-4) (1 − p_label).

    Args:
        logits: (B, C).
        labels: (B,), all of them allowed.
        allowed: (C,) bool, outputs that take part.
    """
    log_p = logits.masked_fill(~allowed, -torch.inf).log_softmax(1)
    own = log_p.gather(1, labels[:, None])
    return -forward * own.mean() - reverse * math.log(MIN_LABEL) * (1 - own.exp()).mean()


def per_task_norm(logits: Tensor, tasks: Tensor) -> Tensor:
    """Mean over the tasks of the norm of each task's logits, (B, 1).

    Args:
        logits: (B, C).
        tasks: (C,) of the classes; any number of classes each.
    """
    own = (logits[:, tasks == task] for task in tasks.unique())
    norms = [torch.linalg.vector_norm(each, dim=1) for each in own]
    return torch.stack(norms).mean(0)[:, None] + 1e-7


def normalised_cross_entropy(logits: Tensor, labels: Tensor, tasks: Tensor) -> Tensor:
    """Cross-entropy of logits (B, C) over `per_task_norm` and SLCA's temperature."""
    return F.cross_entropy(logits / per_task_norm(logits, tasks) / TEMPERATURE, labels)


def mean_scales(tasks: Tensor, decay: float) -> Tensor:
    """Factors of class means: 1 − decay + decay · (t + 1) / T, so that old ones are the smaller.

    Args:
        tasks: (M,) t, of the cells; the newest is T − 1.
    """
    return 1 - decay + decay * (tasks + 1) / (tasks.max() + 1)


def with_smaller_means(
    features: Tensor, cells: Tensor, means: Tensor, tasks: Tensor, decay: float
) -> Tensor:
    """Pseudo-features (B, D) of cells (B,) around means (M, D) times `mean_scales`."""
    return features + (mean_scales(tasks, decay) - 1)[cells, None] * means[cells]
