"""The ViT and one linear head trained together on each task: the frame of systems without prompts.

A member of this family says what is minimised beside the cross-entropy, and what is kept.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Losses, Method, Phase, Prediction, StepResult, TaskView
from hashprompt.methods.frames.options import FinetuningConfig
from hashprompt.methods.frames.prompt_tuning import training_phase
from hashprompt.parts.heads import GrowingLinear, masked_cross_entropy
from hashprompt.parts.trained_weights import TrainedWeights


class FullFinetuning(Method):
    """ViT and head trained together, cross-entropy over the classes of the task."""

    stores = "backbone: vit"
    masked: ClassVar[bool] = True  # whether only the task's own classes compete in training
    copies: ClassVar[int] = 3  # numbers per weight in training: itself, gradient, momentum
    config: FinetuningConfig

    def __init__(self, config: FinetuningConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.head = GrowingLinear(backbone.dim)
        copies = self.copies + (config.optimizer != "sgd")
        self.vit = TrainedWeights(backbone, config.trainable, config.last_blocks, copies)

    # What a member of the family adds. -----------------------------------------------------

    def losses(self, batch: Batch, task: TaskView) -> Losses | StepResult:
        """What is minimised on a batch (B, 3, S, S) of the task."""
        return {"ce": self.cross_entropy(self.logits(batch.inputs), batch.labels, task)}

    # The frame. ----------------------------------------------------------------------------

    def weights(self) -> dict[str, Tensor]:
        """The trained weights of the ViT, by timm's name."""
        return dict(self.vit.tensors())

    def network(self) -> dict[str, Tensor]:
        """All that trains: weights of the ViT, and of the head as `head.weight`, `head.bias`."""
        return {**self.weights(), **dict(self.head.named_parameters(prefix="head"))}

    def features(self, images: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Features (B, D) under the trained weights, or under others."""
        return self.backbone(
            images, Injection(weights=self.weights() if weights is None else weights)
        )

    def logits(self, images: Tensor, network: Mapping[str, Tensor] | None = None) -> Tensor:
        """(B, C) over the classes seen; of an earlier network, over those it knew."""
        if network is None:
            return self.head(self.features(images))
        weights = {name: network[name] for name in self.vit.names}
        features = self.features(images, weights)
        return F.linear(features, network["head.weight"], network["head.bias"])

    def cross_entropy(self, logits: Tensor, labels: Tensor, task: TaskView) -> Tensor:
        """Of new images, whose classes are those of the task."""
        allowed = torch.full_like(self.head.bias, not self.masked, dtype=torch.bool)
        allowed[list(task.classes)] = True
        return masked_cross_entropy(logits, labels, allowed)

    def begin_task(self, task: TaskView) -> None:
        self.head.grow(max(task.classes) + 1)

    def phases(self, task: TaskView) -> list[Phase]:
        trained, head = list(self.vit.parameters()), list(self.head.parameters())
        decay = self.config.weight_decay
        return [training_phase(self.config, lambda b: self.losses(b, task), trained, head, decay)]

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self.logits(images))
