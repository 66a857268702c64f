"""Prompts and one linear head trained together on each task: the frame of the simpler methods.

A method of this frame defines how an image gets its prompts, and which losses are added.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods import base
from hashprompt.methods.base import Batch, Losses, ParamGroup, Phase, Prediction, TaskView
from hashprompt.methods.frames.options import TaskKeyConfig, TuningConfig
from hashprompt.parts.heads import GrowingLinear, cosine, masked_cross_entropy
from hashprompt.parts.legacy import prefixes, shared_task
from hashprompt.parts.slots import TaskPrompts, TaskSlots, between


def tuning_phase(
    config: TuningConfig,
    step: Callable[[Batch], Losses | base.StepResult],
    prompts: Iterable[nn.Parameter],
    head: Iterable[nn.Parameter],
    **changes: Any,
) -> Phase:
    """Training of prompts and head by these options.

    Args:
        changes: fields of the phase that differ from the options.
    """
    rate, decay = config.rate(), config.weight_decay
    groups = ParamGroup(prompts, rate, decay), ParamGroup(head, rate * config.head_lr_scale, decay)
    return base.training_phase(config, step, *groups, **changes)


class PromptOutput(NamedTuple):
    """The prompts of images, and what their choice adds to the loss."""

    inject: Injection
    losses: dict[str, Tensor]  # next to the cross-entropy, in training
    task: Tensor | None = None  # (B,) whose prompts were chosen, if that is a choice of a task


C = TypeVar("C", bound=TuningConfig)


class PromptTuning(base.Method[C]):
    """Prompts and head trained together, cross-entropy over the classes of the task."""

    needs_query: ClassVar[bool] = True  # whether prompts depend on the frozen feature
    masked: ClassVar[bool] = True  # whether only the task's own classes compete in training

    def __init__(self, config: C, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.head = GrowingLinear(backbone.dim)

    # Defined by each method. ---------------------------------------------------------------

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        """Prompts of images.

        Args:
            tokens: (B, N, D) embedded images.
            query: (B, D) their frozen features; (B, 0) when the method does not need them.
            training: images of the current task, whose prompts are trained; else any image.
        """
        raise NotImplementedError

    def prompt_parameters(self) -> list[nn.Parameter]:
        """Parameters with the learning rate of the prompts."""
        raise NotImplementedError

    def features(self, tokens: Tensor, inject: Injection) -> Tensor:
        """Input of the head, (B, D)."""
        return self.backbone.encode(tokens, inject)

    # The frame. ----------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        self.head.grow(max(task.classes) + 1)

    def phases(self, task: TaskView) -> list[Phase]:
        prompts, head = self.prompt_parameters(), self.head.parameters()
        return [tuning_phase(self.config, lambda b: self._step(b, task), prompts, head)]

    def query(self, tokens: Tensor) -> Tensor:
        """Frozen features (B, D) of embedded images, without gradients."""
        if not self.needs_query:
            return tokens.new_empty(len(tokens), 0)
        with torch.no_grad():
            return self.backbone.encode(tokens)

    def allowed(self, task: TaskView) -> Tensor:
        """Outputs of the head that compete while a task is trained, (C,) bool."""
        return self.head.mask(task.classes if self.masked else None)

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        tokens = self.backbone.embed(batch.inputs)
        inject, losses, _ = self.prompt(tokens, self.query(tokens), training=True)
        logits = self.head(self.features(tokens, inject))
        return {"ce": masked_cross_entropy(logits, batch.labels, self.allowed(task)), **losses}

    def features_of(self, images: Tensor) -> Tensor:
        """Input of the head for images of any task, (B, D)."""
        tokens = self.backbone.embed(images)
        inject = self.prompt(tokens, self.query(tokens), training=False).inject
        return self.features(tokens, inject)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        tokens = self.backbone.embed(images)
        query = self.query(tokens) if plain is None else plain
        inject, _, task = self.prompt(tokens, query, training=False)
        return Prediction(self.head(self.features(tokens, inject)), task)


K = TypeVar("K", bound=TaskKeyConfig)


class KeyedTaskPrompts(PromptTuning[K]):
    """Expert prompts e_t with keys k_t; those of earlier tasks stay as they are."""

    keeps = ("prompts.frozen", "keys.frozen")
    stores = "routers: keys"

    def __init__(self, config: K, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, start = base.blocks_of(config.layers, backbone), between(*config.init_range)
        self.prompts = TaskPrompts(blocks, config.prompt_length, backbone.dim, start)  # e_t
        self.keys = TaskSlots((backbone.dim,), start)  # k_t

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.prompts.add()
        self.keys.add(copy_last=False)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        losses, task = {}, None
        if training:  # the task is known, and only its key is pulled towards its images
            pull = cosine(query, self.keys.current[None]).mean()
            losses = {"pull": -self.config.pull * pull}
        else:
            task = cosine(query, self.keys.stacked()).argmax(1)
            task = shared_task(task) if self.config.batchwise_prompt else task
        chosen, layout = self.prompts.of(task, len(query)), self.config.legacy_kv_layout
        return PromptOutput(Injection(prefixes(chosen, self.prompts.blocks, layout)), losses, task)

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts.current, self.keys.current]
