"""The HiDe-Prompt pipeline: task-identity inference, prompts, statistics, aligned head.

Learning a task: (1) TII, on plain features; (2) WTP, the prompts and the head; (3) Gaussians of
the prompted features; (4) TAP, aligning the head of all classes with pseudo-features. A method of
this family only says how it makes its prompts.
"""

from functools import cache
from typing import ClassVar, Literal

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
from hashprompt.methods.frames.configs.hide_pipeline import HeadsConfig, PromptConfig
from hashprompt.parts.cells import Cells
from hashprompt.parts.contrastive import contrastive_identity, contrastive_paper
from hashprompt.parts.discriminant import Discriminant
from hashprompt.parts.gaussians import ClassGaussians, GaussianSampler
from hashprompt.parts.heads import GrowingLinear, TaskIdentityHead, masked_cross_entropy
from hashprompt.parts.pooled_gaussians import make_gaussians
from hashprompt.parts.stored_classes import StoredClasses, stored_classes


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
        samples: drawn of each Gaussian in an epoch, and rows of a batch.
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
    """Everything of the pipeline but the prompts themselves."""

    has_prompts: ClassVar[bool] = True
    keeps: tuple[str, ...] = ("cells.", "plain_stats.", "prompted_stats.")
    stores: ClassVar = {"plain_stats": "statistics", "prompted_stats": "statistics"}
    config: HeadsConfig

    def __init__(self, config: HeadsConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.config = config
        dim = backbone.dim
        self.cells = Cells()
        self.head = GrowingLinear(dim)
        self.plain_stats = self.new_gaussians()
        if self.has_prompts:
            self.prompted_stats = self.new_gaussians()
        if config.tii == "sgd":
            self.tii = TaskIdentityHead(dim)
        self._discriminants: dict[str, Discriminant] = {}  # derived, so never saved
        self._all_prompted: bool | None = None  # derived too

    def new_gaussians(self) -> ClassGaussians:
        """Gaussians of no cell yet."""
        config = self.config
        return make_gaussians(self.backbone.dim, config.statistics, config.rank, config.centroids)

    # What a member of the family adds. -----------------------------------------------------

    def prompted(self, tokens: Tensor, task: Tensor | None, plain: Tensor | None = None) -> Tensor:
        """Features (B, D) of embedded images (B, N, D) under the prompts of their tasks (B,).

        Args:
            tokens: (B, N, D).
            task: (B,); None for training images of the current task.
            plain: (B, D) their plain features, where they are known already.
        """
        raise NotImplementedError

    def prompt_phases(self, task: TaskView) -> list[Phase]:
        """How the prompts of a task are trained."""
        return []

    @property
    def trains_prompts(self) -> bool:
        """Whether tasks get prompts from now on; without, they are told by plain features."""
        return False

    def has_prompts_for(self, task: TaskView) -> bool:
        """Whether the classes of a task are told by prompted features."""
        return self.trains_prompts

    def asks_plain_of(self, task: TaskView) -> bool:
        """Whether answers will ever need the plain Gaussians of a task."""
        return True

    def stored_classes(self, task: int) -> StoredClasses:
        return stored_classes(self.final_stats, self.cells, task)

    def current_features(self, images: Tensor, task: int) -> Tensor:
        tokens = self.backbone.embed(images)
        if not self.has_prompts or self.plain_tasks()[task]:
            return self.backbone.encode(tokens)
        return self.prompted(tokens, torch.full((len(images),), task, device=tokens.device))

    def keep_tasks(self, tasks: Tensor) -> None:
        """Keep what these tasks (n,) have of their own, and nothing of the others."""
        self._changed()

    @property
    def base_stats(self) -> ClassGaussians:
        """The Gaussians that tell tasks apart and vote, of the features of `base_features`."""
        return self.plain_stats

    def base_features(self, tokens: Tensor, plain: Tensor) -> Tensor:
        """Features (B, D) of embedded images (B, N, D) that no later task changes.

        Args:
            plain: (B, D) their plain features, which are such, if a method has no better ones.
        """
        return plain

    @property
    def final_stats(self) -> ClassGaussians:
        """The Gaussians that the final head stands on."""
        return self.prompted_stats if self.has_prompts else self.plain_stats

    # The pipeline. -------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        self.cells.add(task.index, task.classes)
        self.cells.to(self.device)
        self.head.grow(self.cells.classes)
        if self.config.tii == "sgd":
            per_task = self.config.tii_target == "task"
            self.tii.head.grow(task.index + 1 if per_task else len(self.cells.task))

    def phases(self, task: TaskView) -> list[Phase]:
        config, first = self.config, task.index == 0
        rate = config.batch_size / 256
        phases = []
        if self.asks_plain_of(task):
            phases.append(
                Phase("tii-statistics", work=lambda: self._describe(task, self.plain_stats))
            )
        if config.tii == "sgd" and config.tii_epochs:
            group = ParamGroup(tuple(self.tii.parameters()), config.tii_lr * rate)
            phases.append(
                Phase(
                    "tii",
                    step=lambda batch: self._tii_step(batch, task),
                    groups=[group],
                    epochs=config.tii_epochs,
                    batch_size=config.batch_size,
                    view="features",
                )
            )
            if not first:
                rate = config.tii_align_lr * rate
                phases.append(self._alignment("tii-align", self.tii, self.plain_stats, rate))
        phases += self.prompt_phases(task) if self.trains_prompts else []
        if self.has_prompts:
            phases.append(
                Phase("statistics", work=lambda: self._describe(task, self.prompted_stats))
            )
        # Without prompts there is no other training of the head, so the first task needs it too.
        return phases if first and self.trains_prompts else [*phases, *self.head_alignment()]

    def head_alignment(self) -> list[Phase]:
        """The phase that aligns the head with the Gaussians there are, if answers ask the head."""
        if self.config.align == "sgd" or "head" in self.config.voters:
            return [self._alignment("tap", self.head, self.final_stats, self.config.align_lr)]
        return []

    def end_task(self, task: TaskView) -> None:
        self._changed()

    def _changed(self) -> None:
        """Forget what was derived from the statistics."""
        self._discriminants, self._all_prompted = {}, None

    def _describe(self, task: TaskView, stats: ClassGaussians) -> None:
        """Append the Gaussian of every class of the task."""
        plain = stats is self.plain_stats
        if not plain and not self.has_prompts_for(task):
            stats.append(self.plain_stats, len(stats))  # see `plain_tasks`
            return
        embed = self.backbone.embed
        features = task.features() if plain else task.map(lambda x: self.prompted(embed(x), None))
        stats.add(features, task.labels, task.classes)

    def _tii_step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        logits = self.tii(batch.inputs)
        if self.config.tii_target == "task":
            target = torch.full_like(batch.labels, task.index)
            return {"tii": F.cross_entropy(logits, target)}
        allowed = self.cells.task == task.index
        return {
            "tii": masked_cross_entropy(logits, self.cells.of(batch.labels, task.index), allowed)
        }

    def _alignment(self, name: str, head: nn.Module, stats: ClassGaussians, lr: float) -> Phase:
        """TAP (and its TII twin)."""
        config = self.config
        is_tii = name != "tap"
        default = config.batch_size if is_tii else 5 * config.batch_size
        target = self.cells.label
        if is_tii:
            target = (
                self.cells.task
                if config.tii_target == "task"
                else torch.arange(len(self.cells.label), device=self.device)
            )
        old = int((self.cells.task < self.cells.task.max()).sum())
        return alignment_phase(
            name,
            head,
            stats,
            target,
            self.cells.label,
            samples=config.align_samples or default,
            batches=old if is_tii or self.trains_prompts else len(self.cells.task),
            epochs=config.align_epochs,
            lr=lr,
        )

    # Prediction. ---------------------------------------------------------------------------

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        tokens = self.backbone.embed(images)  # shared by both passes
        if not self.asks_plain:
            return self._predict_at_once(tokens)
        plain = self.backbone.encode(tokens) if plain is None else plain
        base = self.base_features(tokens, plain)
        scores = self._base_scores(base)
        task, guess = self.infer_task(base, scores)
        logits = self._logits(tokens, plain, scores, task)
        if self.config.second_task and int(self.cells.task.max()):
            logits = self._with_second_task(logits, tokens, plain, base, scores)
        return Prediction(logits, task, guess)

    def _logits(self, tokens: Tensor, plain: Tensor, scores: Tensor, task: Tensor) -> Tensor:
        """Of all classes (B, C), with the prompts of these tasks (B,)."""
        features = self._final_features(tokens, plain, task)
        if self.config.align == "sgd":
            logits = self.head(features)
        else:
            logits = self.cells.to_classes(self.discriminant("prompted").scores(features))
        return self._with_votes(logits, features, scores)

    def _predict_at_once(self, tokens: Tensor) -> Prediction:
        """One pass, where all tasks share their prompts: the task is that of the nearest cell."""
        features = self.prompted(tokens, None)
        scores = self.discriminant("prompted").scores(features)
        logits = self._with_votes(self.cells.to_classes(scores), features, scores)
        return Prediction(logits, self.cells.task[scores.argmax(1)], features=features)

    def _with_votes(self, logits: Tensor, features: Tensor, base_scores: Tensor) -> Tensor:
        """Logits (B, C) and what other classifiers say.

        Args:
            features: (B, D) final ones.
            base_scores: (B, M) of the cells, for base features.
        """
        for voter in self.config.voters:
            votes = self.head(features) if voter == "head" else self.cells.to_classes(base_scores)
            logits = logits.log_softmax(1) + votes.log_softmax(1)
        return logits

    def _with_second_task(
        self, logits: Tensor, tokens: Tensor, plain: Tensor, base: Tensor, scores: Tensor
    ) -> Tensor:
        """Log-probabilities (B, C), those of unsure images mixed over their two likeliest tasks."""
        logits = logits.log_softmax(1)
        chances, tasks = self._task_scores(base, scores).softmax(1).topk(2)
        rows = (chances[:, 0] < self.config.second_task).nonzero()[:, 0]
        if len(rows):
            second = self._logits(tokens[rows], plain[rows], scores[rows], tasks[rows, 1])
            weights = chances[rows].log().log_softmax(1)
            both = torch.stack((logits[rows], second.log_softmax(1)), 1)
            logits[rows] = (both + weights[..., None]).logsumexp(1).to(logits)
        return logits

    def _task_scores(self, base: Tensor, scores: Tensor) -> Tensor:
        """Log scores of the tasks (B, T), that of the best cell as in :meth:`infer_task`."""
        if self.config.tii == "sgd":
            scores = self.tii(base)
            if self.config.tii_target == "task":
                return scores
        of_task = [scores[:, self.cells.task == task] for task in self.cells.task.unique()]
        return torch.stack([own.amax(1) for own in of_task], 1)

    def plain_tasks(self) -> Tensor:
        """Which tasks (T,) were learned without prompts: their Gaussians are the plain ones."""
        plain = torch.ones(int(self.cells.task.max()) + 1, dtype=torch.bool, device=self.device)
        prompted, known = self.prompted_stats.means, self.plain_stats.means
        both = min(len(prompted), len(known))
        same = torch.zeros(len(self.cells.task), dtype=torch.bool, device=self.device)
        same[:both] = (prompted[:both] == known[:both]).all(1)
        plain[self.cells.task[~same]] = False
        return plain

    @property
    def all_prompted(self) -> bool:
        """Whether every task was learned with prompts."""
        if self._all_prompted is None:  # not asked of the device for every batch
            self._all_prompted = not self.plain_tasks().any()
        return self._all_prompted

    def _final_features(self, tokens: Tensor, plain: Tensor, task: Tensor) -> Tensor:
        """(B, D) under the prompts of each image's task (B,); plain (B, D) where it has none."""
        if self.all_prompted:
            return self.prompted(tokens, task, plain)
        features, rows = plain.clone(), (~self.plain_tasks()[task]).nonzero()[:, 0]
        if len(rows):
            features[rows] = self.prompted(tokens[rows], task[rows], plain[rows]).to(features)
        return features

    def _base_scores(self, base: Tensor) -> Tensor:
        """Scores of the cells (B, M) for base features; empty (B, 0) where nobody asks."""
        if self.config.tii == "discriminant" or "plain" in self.config.voters:
            return self.discriminant("base").scores(base)
        return base[:, :0]

    def infer_task(
        self, base: Tensor, scores: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The task of each image (B,) and the class behind it.

        Args:
            base: (B, D) base features.
            scores: (B, M) of their discriminant, where they are known already.
        """
        scores = self._base_scores(base) if scores is None else scores
        if self.config.tii == "sgd":
            scores = self.tii(base)
            if self.config.tii_target == "task":
                return scores.argmax(1), None
        cell = scores.argmax(1)
        return self.cells.task[cell], self.cells.label[cell]

    def discriminant(self, which: Literal["base", "prompted"]) -> Discriminant:
        """The classifier read off the Gaussians, made on first use after a change."""
        if which not in self._discriminants:
            stats = self.base_stats if which == "base" else self.final_stats
            config = self.config
            form = (config.shrinkage, config.ridge, config.discriminant_temperature)
            self._discriminants[which] = Discriminant(stats.means, stats.covariances(), *form)
        return self._discriminants[which]


class PromptPipeline(Pipeline):
    """The pipeline with prompts that are trained with the head on each task."""

    config: PromptConfig

    @property
    def trains_prompts(self) -> bool:
        return self.config.epochs > 0

    def inject(self, tokens: Tensor, task: Tensor | None) -> Injection:
        """The prompts of embedded images (B, N, D); `task` as in :meth:`prompted`."""
        raise NotImplementedError

    def prompt_parameters(self) -> list[nn.Parameter]:
        """What is trained at the prompts' rate."""
        raise NotImplementedError

    def prompted(self, tokens: Tensor, task: Tensor | None, plain: Tensor | None = None) -> Tensor:
        return self.backbone.encode(tokens, self.inject(tokens, task))

    def prompt_phases(self, task: TaskView) -> list[Phase]:
        config = self.config
        lr = config.rate()
        return [
            Phase(
                "wtp",
                step=lambda batch: self._wtp_step(batch, task),
                groups=[
                    ParamGroup(tuple(self.prompt_parameters()), lr),
                    ParamGroup(tuple(self.head.parameters()), lr * config.head_lr_scale),
                ],
                epochs=config.epochs,
                batch_size=config.batch_size,
                schedule=config.schedule,
                clip=config.clip,
            )
        ]

    def _wtp_step(self, batch: Batch, task: TaskView) -> Losses | StepResult:
        features = self.prompted(self.backbone.embed(batch.inputs), None)
        return self.wtp_losses(features, batch.labels, task)

    def wtp_losses(self, features: Tensor, labels: Tensor, task: TaskView) -> Losses:
        """Eq. 15: cross-entropy over the task's classes + λ · contrastive term.

        Args:
            features: (B, D) under the prompts.
            labels: (B,).
            task: the current one.
        """
        new = torch.zeros(self.cells.classes, dtype=torch.bool, device=features.device)
        new[list(task.classes)] = True
        logits, allowed = self.head(features), new
        if self.config.compete == "all":
            # Without their images, rows of old classes would only learn to be silent.
            still = F.linear(features, self.head.weight.detach(), self.head.bias.detach())
            logits, allowed = torch.where(new, logits, still), torch.ones_like(new)
        losses = {"ce": masked_cross_entropy(logits, labels, allowed)}
        if self.config.contrastive:
            identity = self.config.contrastive_form == "identity"
            form = contrastive_identity if identity else contrastive_paper
            old_labels = self.cells.label[: len(self.prompted_stats)]
            same = labels[:, None] == old_labels
            means = self.prompted_stats.means
            term = form(features, means, same, self.config.temperature)
            losses["contrastive"] = self.config.contrastive * term
        return losses
