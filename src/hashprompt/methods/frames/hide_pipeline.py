"""The HiDe-Prompt pipeline: task inference, prompts, class statistics, an aligned head.

A task is learned in four stages: task inference (TII) on frozen features, prompts and head (WTP),
Gaussians of the prompted features, and the alignment of the head of all classes with
pseudo-features (TAP). A method of this family only says how it makes its prompts.
"""

from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import (
    Batch,
    Losses,
    Method,
    ParamGroup,
    Phase,
    Prediction,
    StepResult,
    TaskView,
)
from hashprompt.methods.frames.contrastive import contrastive_identity, contrastive_paper
from hashprompt.methods.frames.options import HeadsConfig, PromptConfig
from hashprompt.parts.cells import Cells
from hashprompt.parts.discriminant import Discriminant
from hashprompt.parts.gaussians import (
    ClassGaussians,
    GaussianSampler,
    StoredClasses,
    stored_classes,
)
from hashprompt.parts.heads import GrowingLinear, TaskIdentityHead, masked_cross_entropy
from hashprompt.parts.pooled_gaussians import make_gaussians


def alignment_phase(
    name: str,
    head: nn.Module,
    stats: ClassGaussians,
    target: Tensor,
    classes: Tensor,
    *,
    samples: int,
    batches: int,
    epochs: int,
    lr: float,
    optimizer: Literal["adam", "sgd"] = "sgd",
) -> Phase:
    """Cross-entropy of a head over all that was seen, on pseudo-features of Gaussians.

    Args:
        target: (M,) what the head should answer for each Gaussian.
        classes: (M,) class of each Gaussian, to name it in an error.
        samples: drawn from each Gaussian in an epoch, and rows of a batch.
        batches: of an epoch (fewer than the draw would fill: as many as there are old classes).
    """

    @cache  # the factors serve all epochs; made on first use, when the statistics are there
    def sampler() -> GaussianSampler:
        return stats.sampler(classes)

    def draw() -> list[Batch]:
        features, cells = sampler().draw(samples)
        order = torch.randperm(len(cells), device=features.device)
        rows = order[: batches * samples].split(samples)
        return [Batch(features[r], target[cells[r]]) for r in rows]

    return Phase(
        name,
        step=lambda batch: {name: F.cross_entropy(head(batch.inputs), batch.labels)},
        groups=[ParamGroup(tuple(head.parameters()), lr)],
        epochs=epochs,
        draw=draw,
        optimizer=optimizer,
        schedule="cosine",
    )


class Pipeline(Method):
    """The pipeline without prompts: task inference, statistics and head on frozen features."""

    keeps: tuple[str, ...] = ("cells.", "plain_stats.")
    stores = "statistics: plain_stats"
    config: HeadsConfig

    def __init__(self, config: HeadsConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.cells = Cells()
        self.head = GrowingLinear(backbone.dim)
        self.plain_stats = make_gaussians(backbone.dim, config.statistics)
        if config.tii == "sgd":
            self.tii = TaskIdentityHead(backbone.dim)
        self._discriminants: dict[ClassGaussians, Discriminant] = {}  # derived, so never saved

    @property
    def final_stats(self) -> ClassGaussians:
        """The Gaussians of the features that the final head answers for."""
        return self.plain_stats

    def begin_task(self, task: TaskView) -> None:
        self.cells.add(task.index, task.classes)
        self.cells.to(self.device)
        self.head.grow(self.cells.classes)
        if self.config.tii == "sgd":
            per_task = self.config.tii_target == "task"
            self.tii.head.grow(task.index + 1 if per_task else len(self.cells.task))

    def phases(self, task: TaskView) -> list[Phase]:
        return [*self.inference_phases(task), *self.head_phases(len(self.cells.task))]

    def inference_phases(self, task: TaskView) -> list[Phase]:
        """Task inference: Gaussians of frozen features, and the network trained and aligned."""
        config, stats = self.config, self.plain_stats

        def describe() -> None:
            stats.add(task.features(), task.labels, task.classes)

        phases = [Phase("tii-statistics", work=describe)]
        if config.tii == "discriminant" or not config.tii_epochs:
            return phases
        scale = config.batch_size / 256
        train = Phase(
            "tii",
            step=lambda batch: self.tii_losses(batch, task),
            groups=[ParamGroup(tuple(self.tii.parameters()), config.tii_lr * scale)],
            epochs=config.tii_epochs,
            batch_size=config.batch_size,
            view="features",
        )
        if task.index == 0:
            return [*phases, train]
        cells = torch.arange(len(self.cells.label), device=self.device)
        target = self.cells.task if config.tii_target == "task" else cells
        align = alignment_phase(
            "tii-align",
            self.tii,
            stats,
            target,
            self.cells.label,
            samples=config.align_samples or config.batch_size,
            batches=self.old_cells(),
            epochs=config.align_epochs,
            lr=config.tii_align_lr * scale,
        )
        return [*phases, train, align]

    def head_phases(self, batches: int) -> list[Phase]:
        """The alignment of the final head with the Gaussians of all classes (TAP)."""
        config = self.config
        if config.align == "discriminant":
            return []
        align = alignment_phase(
            "tap",
            self.head,
            self.final_stats,
            self.cells.label,
            self.cells.label,
            samples=config.align_samples or 5 * config.batch_size,
            batches=batches,
            epochs=config.align_epochs,
            lr=config.align_lr,
        )
        return [align]

    def old_cells(self) -> int:
        """Number of cells of tasks before the last."""
        return int((self.cells.task < self.cells.task.max()).sum())

    def end_task(self, task: TaskView) -> None:
        self._discriminants = {}

    def tii_losses(self, batch: Batch, task: TaskView) -> Losses:
        """Cross-entropy of task inference, over the cells of the task (or over tasks)."""
        logits = self.tii(batch.inputs)
        if self.config.tii_target == "task":
            target = torch.full_like(batch.labels, task.index)
            return {"tii": F.cross_entropy(logits, target)}
        cells, allowed = self.cells.of(batch.labels, task.index), self.cells.task == task.index
        return {"tii": masked_cross_entropy(logits, cells, allowed)}

    # Prediction. ---------------------------------------------------------------------------

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        plain = self.backbone(images) if plain is None else plain
        return Prediction(self.classify(plain), *self.infer_task(plain))

    def infer_task(self, plain: Tensor) -> tuple[Tensor, Tensor | None]:
        """The task of each image (B,), and the class behind it, from frozen features (B, D)."""
        if self.config.tii == "discriminant":
            scores = self.discriminant(self.plain_stats).scores(plain)
        else:
            scores = self.tii(plain)
            if self.config.tii_target == "task":
                return scores.argmax(1), None
        cell = scores.argmax(1)
        return self.cells.task[cell], self.cells.label[cell]

    def classify(self, features: Tensor) -> Tensor:
        """Logits over all classes (B, C) of final features (B, D)."""
        if self.config.align == "sgd":
            return self.head(features)
        return self.cells.to_classes(self.discriminant(self.final_stats).scores(features))

    def discriminant(self, stats: ClassGaussians) -> Discriminant:
        """The classifier read off Gaussians, made on first use after a task."""
        if stats not in self._discriminants:
            self._discriminants[stats] = Discriminant(
                stats.means,
                stats.covariances(),
                shrinkage=self.config.shrinkage,
                ridge=self.config.ridge,
            )
        return self._discriminants[stats]

    def stored_classes(self, task: int) -> StoredClasses:
        return stored_classes(self.final_stats, self.cells, task)

    def current_features(self, images: Tensor, task: int) -> Tensor:
        return self.backbone(images)


class PromptPipeline(Pipeline):
    """The pipeline with prompts, which are trained together with the head on each task."""

    keeps = (*Pipeline.keeps, "prompted_stats.")
    stores = "statistics: prompted_stats"
    config: PromptConfig

    def __init__(self, config: PromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.prompted_stats = make_gaussians(backbone.dim, config.statistics)

    @property
    def final_stats(self) -> ClassGaussians:
        return self.prompted_stats

    # What a member of the family adds. -----------------------------------------------------

    def inject(self, tokens: Tensor, task: Tensor | None) -> Injection:
        """The prompts of embedded images.

        Args:
            tokens: (B, N, D).
            task: (B,) whose prompts; None for training images of the current task.
        """
        raise NotImplementedError

    def prompt_parameters(self) -> list[nn.Parameter]:
        """What is trained at the learning rate of the prompts."""
        raise NotImplementedError

    # The frame. ----------------------------------------------------------------------------

    def prompted(self, tokens: Tensor, task: Tensor | None) -> Tensor:
        """Features (B, D) under the prompts of embedded images; arguments as of `inject`."""
        return self.backbone.encode(tokens, self.inject(tokens, task))

    def phases(self, task: TaskView) -> list[Phase]:
        def describe() -> None:
            features = task.map(lambda images: self.prompted(self.backbone.embed(images), None))
            self.prompted_stats.add(features, task.labels, task.classes)

        phases = [
            *self.inference_phases(task),
            self.prompt_phase(task),
            Phase("statistics", work=describe),
        ]
        return phases if task.index == 0 else [*phases, *self.head_phases(self.old_cells())]

    def prompt_phase(self, task: TaskView) -> Phase:
        """Training of prompts and head (WTP)."""
        config, lr = self.config, self.config.rate()
        return Phase(
            "wtp",
            step=lambda batch: self.step(batch, task),
            groups=[
                ParamGroup(tuple(self.prompt_parameters()), lr),
                ParamGroup(tuple(self.head.parameters()), lr * config.head_lr_scale),
            ],
            epochs=config.epochs,
            batch_size=config.batch_size,
            schedule=config.schedule,
            clip=config.clip,
        )

    def step(self, batch: Batch, task: TaskView) -> Losses | StepResult:
        features = self.prompted(self.backbone.embed(batch.inputs), None)
        return self.losses(features, batch.labels, task)

    def losses(self, features: Tensor, labels: Tensor, task: TaskView) -> Losses:
        """Cross-entropy over the classes of the task + λ · contrastive term.

        Args:
            features: (B, D) under the prompts.
            labels: (B,).
        """
        losses = {"ce": masked_cross_entropy(self.head(features), labels, task.classes)}
        if self.config.contrastive:
            is_identity = self.config.contrastive_form == "identity"
            form = contrastive_identity if is_identity else contrastive_paper
            means = self.prompted_stats.means
            same = labels[:, None] == self.cells.label[: means.shape[0]]
            term = form(features, means, same, self.config.temperature)
            losses["contrastive"] = self.config.contrastive * term
        return losses

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        tokens = self.backbone.embed(images)  # shared by both passes
        plain = self.backbone.encode(tokens) if plain is None else plain
        task, guess = self.infer_task(plain)
        return Prediction(self.classify(self.prompted(tokens, task)), task, guess)

    def current_features(self, images: Tensor, task: int) -> Tensor:
        tokens = self.backbone.embed(images)
        return self.prompted(tokens, torch.full((len(images),), task, device=tokens.device))
