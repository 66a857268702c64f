"""LAE: what is tuned learns fast and is averaged slowly; the surer of both answers.

Gao et al., ICCV 2023 ("learning, accumulation, ensemble"). The head of a new task trains first,
so that the tuned values are not moved by its random start.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, Method, Phase, Prediction, TaskView, blocks_of
from hashprompt.methods.frames.prompt_tuning import training_phase
from hashprompt.methods.lae.config import LaeConfig
from hashprompt.methods.lae.peft_modules import (
    AttentionAdapters,
    CompensatedPrefixes,
    KeyValueLora,
    Pet,
    Values,
)
from hashprompt.parts.heads import GrowingLinear, masked_cross_entropy
from hashprompt.parts.trained_weights import Snapshot


def make_pet(config: LaeConfig, backbone: Backbone) -> Pet:
    """What is tuned by these options."""
    blocks = blocks_of(config.layers, backbone)
    if config.pet == "adapter":
        return AttentionAdapters(backbone, blocks, config.adapter_width)
    if config.pet == "lora":
        return KeyValueLora(backbone, blocks, config.rank)
    return CompensatedPrefixes(backbone, blocks, config.prompt_length)


class Lae(Method):
    """Online and offline tuning under one head."""

    stores = "prompts: online offline"
    config: LaeConfig

    def __init__(self, config: LaeConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.online = make_pet(config, backbone)  # θ
        self.offline = Snapshot(self.online.values())  # θ̄, from the second task on
        self.head = GrowingLinear(backbone.dim)

    def begin_task(self, task: TaskView) -> None:
        self.head.grow(max(task.classes) + 1)
        if task.index > 0 and not self.offline.taken:
            self.offline.take(self.online.values())

    def phases(self, task: TaskView) -> list[Phase]:
        config = self.config
        train = training_phase(
            config,
            lambda batch: self._step(batch, task),
            list(self.online.parameters()),
            list(self.head.parameters()),
            config.weight_decay,
        )
        if not self.offline.taken:
            return [replace(train, epochs=config.head_epochs + config.epochs)]
        head = replace(
            train,
            name="head",
            step=lambda batch: self._step(batch, task, tune=False),
            groups=train.groups[1:],
            epochs=config.head_epochs,
            update=self._accumulate,
        )
        return [head, replace(train, update=self._accumulate)]

    def _step(self, batch: Batch, task: TaskView, tune: bool = True) -> dict[str, Tensor]:
        with torch.set_grad_enabled(tune):
            features = self.features(batch.inputs, self.online.values())
        logits = self.head(features)
        return {"ce": masked_cross_entropy(logits, batch.labels, task.classes)}

    @contextmanager
    def _accumulate(self, _: object) -> Iterator[None]:
        """After every step θ̄ ← α θ̄ + (1 − α) θ."""
        yield
        online = self.online.values()
        with torch.no_grad():
            for name, slow in self.offline.tensors().items():
                slow.lerp_(online[name], 1 - self.config.ema_decay)

    def features(self, images: Tensor, values: Values) -> Tensor:
        """Features (B, D) of images (B, 3, S, S) under online or offline values."""
        return self.backbone(images, self.online.inject(values, len(images)))

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        """Log of the larger of both probabilities of each class."""
        both = [self.online.values(), *([self.offline.tensors()] if self.offline.taken else [])]
        answers = [self.head(self.features(images, v)).log_softmax(1) for v in both]
        return Prediction(torch.stack(answers).amax(0))
