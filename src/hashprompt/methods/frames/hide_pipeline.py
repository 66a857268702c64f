"""The HiDe-Prompt pipeline: task inference, prompts, class statistics, an aligned head.

A task is learned in four stages: task inference (TII) on frozen features, prompts and head (WTP),
Gaussians of the prompted features, and the alignment of the head of all classes with
pseudo-features (TAP). A method of this frame only defines its prompts.
"""

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods import base
from hashprompt.methods.base import Batch, Losses, ParamGroup, Phase, Prediction, TaskView
from hashprompt.methods.frames.classifier_alignment import alignment_phase
from hashprompt.methods.frames.options import HeadsConfig, PromptConfig, TaskPromptConfig
from hashprompt.parts.cells import Cells
from hashprompt.parts.gaussians import ClassGaussians, Discriminant, StoredClasses
from hashprompt.parts.heads import GrowingLinear, TaskIdentityHead, masked_cross_entropy
from hashprompt.parts.legacy import prefixes, shared_task
from hashprompt.parts.slots import TaskPrompts, uniform

C = TypeVar("C", bound=HeadsConfig)


class Pipeline(base.Method[C]):
    """The pipeline without prompts: task inference, statistics and head on frozen features."""

    keeps: tuple[str, ...] = ("cells.", "plain_stats.")
    stores = "statistics: plain_stats"

    def __init__(self, config: C, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.cells = Cells()
        self.head = GrowingLinear(backbone.dim)
        self.plain_stats = ClassGaussians(backbone.dim, config.statistics)
        if config.tii == "sgd":
            self.tii = TaskIdentityHead(backbone.dim)

    @property
    def final_stats(self) -> ClassGaussians:
        """The Gaussians of the features that the final head classifies."""
        return self.plain_stats

    def begin_task(self, task: TaskView) -> None:
        self.cells.add(task.index, task.classes)
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
            groups=[ParamGroup(self.tii.parameters(), config.tii_lr * scale)],
            epochs=config.tii_epochs,
            batch_size=config.batch_size,
            view="features",
        )
        if task.index == 0:
            return [*phases, train]
        cells = torch.arange(len(self.cells.label), device=self.device)
        align = alignment_phase(
            "tii-align",
            stats,
            self.cells.label,
            ParamGroup(self.tii.parameters(), config.tii_align_lr * scale),
            lambda features, target: F.cross_entropy(self.tii(features), target),
            target=self.cells.task if config.tii_target == "task" else cells,
            samples=config.align_samples or config.batch_size,
            batches=self.old_cells(),  # fewer than the pseudo-features would fill
            epochs=config.align_epochs,
        )
        return [*phases, train, align]

    def head_phases(self, batches: int) -> list[Phase]:
        """The alignment of the final head with the Gaussians of all classes (TAP)."""
        config = self.config
        if config.align == "discriminant":
            return []
        align = alignment_phase(
            "tap",
            self.final_stats,
            self.cells.label,
            ParamGroup(self.head.parameters(), config.align_lr),
            lambda features, labels: F.cross_entropy(self.head(features), labels),
            samples=config.align_samples or 5 * config.batch_size,
            batches=batches,
            epochs=config.align_epochs,
        )
        return [align]

    def old_cells(self) -> int:
        """Number of cells of tasks before the last."""
        return int((self.cells.task < self.cells.task.max()).sum())

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
        """The classifier of Gaussians with the options' regularisation."""
        return stats.discriminant(self.config.shrinkage, self.config.ridge)

    def stored_classes(self, task: int) -> StoredClasses:
        return self.final_stats.stored_classes(self.cells, task)

    def current_features(self, images: Tensor, task: int) -> Tensor:
        return self.backbone(images)


P = TypeVar("P", bound=PromptConfig)


class PromptPipeline(Pipeline[P]):
    """The pipeline with prompts, which are trained together with the head on each task."""

    keeps = (*Pipeline.keeps, "prompted_stats.")
    stores = "statistics: prompted_stats"

    def __init__(self, config: P, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.prompted_stats = ClassGaussians(backbone.dim, config.statistics)

    @property
    def final_stats(self) -> ClassGaussians:
        return self.prompted_stats

    # Defined by each method. ---------------------------------------------------------------

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

        statistics = Phase("statistics", work=describe)
        heads = self.head_phases(self.old_cells()) if task.index else []
        return [*self.inference_phases(task), self.prompt_phase(task), statistics, *heads]

    def prompt_phase(self, task: TaskView) -> Phase:
        """Training of prompts and head (WTP)."""
        config, lr = self.config, self.config.rate()
        prompts = ParamGroup(self.prompt_parameters(), lr)
        head = ParamGroup(self.head.parameters(), lr * config.head_lr_scale)
        return base.training_phase(config, lambda b: self.step(b, task), prompts, head, name="wtp")

    def step(self, batch: Batch, task: TaskView) -> Losses | base.StepResult:
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


T = TypeVar("T", bound=TaskPromptConfig)


class TaskPromptPipeline(PromptPipeline[T]):
    """The pipeline with a separate prompt for every task."""

    keeps = (*PromptPipeline.keeps, "prompts.frozen")

    def __init__(self, config: T, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, length = base.blocks_of(config.layers, backbone), config.prompt_length
        self.prompts = TaskPrompts(blocks, length, backbone.dim, uniform(1), config.momentum)

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.prompts.add()

    def inject(self, tokens: Tensor, task: Tensor | None) -> Injection:
        if task is not None and self.config.batchwise_prompt:
            task = shared_task(task)
        chosen, layout = self.prompts.of(task, len(tokens)), self.config.legacy_kv_layout
        return Injection(prefix=prefixes(chosen, self.prompts.blocks, layout))

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts.current]


def contrastive_identity(
    features: Tensor, old_means: Tensor, same: Tensor, temperature: float = 0.8
) -> Tensor:
    """Bounded form: every feature and every old mean is its own only positive.

    Args:
        features: (B, D) of the batch.
        old_means: (M, D) of earlier cells, possibly none.
        same: (B, M) bool, pairs of one class (seen in another domain): they do not repel.
    """
    count = len(old_means)
    rows = torch.cat((old_means.to(features), features))
    alike = torch.zeros(len(rows), len(rows), dtype=torch.bool, device=rows.device)
    alike[count:, :count], alike[:count, count:] = same, same.T
    similarity = (rows @ rows.T / temperature).masked_fill(alike, -torch.inf)
    return F.cross_entropy(similarity, torch.arange(len(rows), device=rows.device))


def contrastive_paper(
    features: Tensor, old_means: Tensor, same: Tensor, temperature: float = 0.8
) -> Tensor:
    """The formula as printed, averaged over features and old classes: mean log(e^{h·μ/τ} / Z(h)).

    Z(h) runs over the batch and the old means. Minimising it pushes features away from old means
    without bound.
    """
    if same.all():  # no old class, or only old domains of the same class
        return features.new_zeros(())
    rows = torch.cat((features, old_means.to(features)))
    alike = F.pad(same, (len(features), 0))
    log_share = (features @ rows.T / temperature).masked_fill(alike, -torch.inf).log_softmax(1)
    return log_share[:, len(features) :][~same].mean()
