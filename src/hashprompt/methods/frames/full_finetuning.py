"""The ViT and one linear head trained together on each task: the frame of systems without prompts.

A method of this frame defines the losses next to the cross-entropy, and what is stored.
"""

from collections.abc import Mapping
from typing import ClassVar, TypeVar

import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Losses, Method, Phase, Prediction, StepResult, TaskView
from hashprompt.methods.frames.options import FinetuningConfig
from hashprompt.methods.frames.prompt_tuning import tuning_phase
from hashprompt.parts.heads import GrowingLinear, masked_cross_entropy
from hashprompt.parts.trained_weights import Snapshot, TrainedWeights

C = TypeVar("C", bound=FinetuningConfig)


class FullFinetuning(Method[C]):
    """ViT and head trained together, cross-entropy over the classes of the task."""

    stores = "backbone: vit"
    masked: ClassVar[bool] = True  # whether only the task's own classes compete in training
    teaches: ClassVar[bool] = False  # whether the network before a task is kept as the teacher

    def __init__(self, config: C, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.head = GrowingLinear(backbone.dim)
        self.vit = TrainedWeights(backbone, config.trainable, config.last_blocks)
        if self.teaches:
            self.teacher = Snapshot(self.network())

    # Defined by each method. ---------------------------------------------------------------

    def losses(self, batch: Batch, task: TaskView) -> Losses | StepResult:
        """Losses of a batch (B, 3, S, S) of the task."""
        return {"ce": self.cross_entropy(self.logits(batch.inputs), batch.labels, task)}

    # The frame. ----------------------------------------------------------------------------

    def network(self) -> dict[str, Tensor]:
        """All trained weights: of the ViT, and of the head as `head.weight`, `head.bias`."""
        return {**self.vit.tensors(), **dict(self.head.named_parameters(prefix="head"))}

    def features(self, images: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Features (B, D) under the trained weights, or under others."""
        weights = self.vit.tensors() if weights is None else weights
        return self.backbone(images, Injection(weights=weights))

    def logits(self, images: Tensor, network: Mapping[str, Tensor] | None = None) -> Tensor:
        """(B, C) over the classes seen; of an earlier network, over those it knew."""
        if network is None:
            return self.head(self.features(images))
        features = self.features(images, {name: network[name] for name in self.vit.names})
        return F.linear(features, network["head.weight"], network["head.bias"])

    def cross_entropy(self, logits: Tensor, labels: Tensor, task: TaskView) -> Tensor:
        """Of new images, whose classes are those of the task."""
        allowed = self.head.mask(task.classes if self.masked else None)
        return masked_cross_entropy(logits, labels, allowed)

    def begin_task(self, task: TaskView) -> None:
        if self.teaches and len(self.head.bias):
            self.teacher.take(self.network())
        self.head.grow(max(task.classes) + 1)

    def phases(self, task: TaskView) -> list[Phase]:
        vit, head = self.vit.parameters(), self.head.parameters()
        return [tuning_phase(self.config, lambda batch: self.losses(batch, task), vit, head)]

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self.logits(images))
