"""Prompts and one linear head trained together on each task: the frame of the simpler methods.

A member of this family says how an image gets its prompts, and what else is minimised.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
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
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.parts.heads import GrowingLinear, masked_cross_entropy


def training_phase(
    config: TuningConfig,
    step: Callable[[Batch], Losses | StepResult],
    prompts: list[nn.Parameter],
    head: list[nn.Parameter],
    weight_decay: float,
) -> Phase:
    """Training of prompts and head by these options."""
    rate = config.rate()
    groups = (
        ParamGroup(tuple(prompts), rate, weight_decay),
        ParamGroup(tuple(head), rate * config.head_lr_scale, weight_decay),
    )
    return Phase(
        "train",
        step=step,
        groups=groups,
        epochs=config.epochs,
        batch_size=config.batch_size,
        optimizer=config.optimizer,
        schedule=config.schedule,
        clip=config.clip,
    )


class PromptOutput(NamedTuple):
    """What an image gets."""

    inject: Injection
    losses: dict[str, Tensor]  # what is minimised beside the cross-entropy, in training
    task: Tensor | None = None  # (B,) whose prompts were chosen, if that is a choice of a task


class PromptTuning(Method):
    """Prompts and head trained together, cross-entropy over the classes of the task."""

    needs_query: ClassVar[bool] = True  # whether prompts depend on the plain feature
    masked: ClassVar[bool] = True  # whether only the task's own classes compete in training
    config: TuningConfig

    def __init__(self, config: TuningConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.head = GrowingLinear(backbone.dim)

    # What a member of the family adds. -----------------------------------------------------

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        """Prompts of images.

        Args:
            tokens: (B, N, D) embedded images.
            query: (B, D) their plain features; (B, 0) when the method does not need them.
            training: images of the current task, whose prompts are trained; else any image.
        """
        raise NotImplementedError

    def prompt_parameters(self) -> list[nn.Parameter]:
        """What is trained at the prompts' rate."""
        raise NotImplementedError

    def features(self, tokens: Tensor, inject: Injection) -> Tensor:
        """What the head reads, (B, D)."""
        return self.backbone.encode(tokens, inject)

    # The frame. ----------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        self.head.grow(max(task.classes) + 1)

    def phases(self, task: TaskView) -> list[Phase]:
        return [
            training_phase(
                self.config,
                lambda batch: self._step(batch, task),
                self.prompt_parameters(),
                list(self.head.parameters()),
                self.config.weight_decay,
            )
        ]

    def query(self, tokens: Tensor) -> Tensor:
        """Plain features (B, D) of embedded images, without gradients."""
        if not self.needs_query:
            return tokens.new_empty(len(tokens), 0)
        with torch.no_grad():
            return self.backbone.encode(tokens)

    def allowed(self, task: TaskView) -> Tensor:
        """Which outputs of the head compete while a task is trained, (C,) bool."""
        allowed = torch.full_like(self.head.bias, not self.masked, dtype=torch.bool)
        allowed[list(task.classes)] = True
        return allowed

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        tokens = self.backbone.embed(batch.inputs)
        inject, losses, _ = self.prompt(tokens, self.query(tokens), training=True)
        logits = self.head(self.features(tokens, inject))
        return {"ce": masked_cross_entropy(logits, batch.labels, self.allowed(task)), **losses}

    def features_of(self, images: Tensor) -> Tensor:
        """What the head reads of images of any task, (B, D)."""
        tokens = self.backbone.embed(images)
        inject = self.prompt(tokens, self.query(tokens), training=False).inject
        return self.features(tokens, inject)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        tokens = self.backbone.embed(images)
        query = self.query(tokens) if plain is None else plain
        inject, _, task = self.prompt(tokens, query, training=False)
        return Prediction(self.head(self.features(tokens, inject)), task)
