"""SLCA++: SLCA with low-rank factors instead of the whole ViT, and a symmetric loss.

Zhang et al., arXiv 2408.08295. Features of old classes are taken to be smaller than they were by
the tasks since: pseudo-features are shrunk in alignment, and inputs of old heads are stretched.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import ParamGroup, Phase, Prediction, TaskView
from hashprompt.methods.frames.classifier_alignment import AlignedTuning, symmetric_cross_entropy
from hashprompt.methods.slca_plus.config import SLCAPlusConfig
from hashprompt.parts.lora import TrainedLoRA

LAYERS = ("attn.qkv", "mlp.fc1", "mlp.fc2")
SPREAD = 0.02  # pseudo-features shrink at random: m is uniform in feature_scale ± half of it


class SLCAPlus(AlignedTuning[SLCAPlusConfig]):
    """Slow learning of few weights, with classifier alignment."""

    keeps = (*AlignedTuning.keeps, "gaussians.", "head.")
    stores = "prompts: lora"

    def __init__(self, config: SLCAPlusConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.lora = TrainedLoRA(backbone, LAYERS, config.rank, config.lora_scale)

    def features(self, images: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Features (B, D) under the trained weights and factors."""
        weights = self.vit.tensors() if weights is None else weights
        return self.backbone(images, Injection(weights=weights, edits=self.lora.edits()))

    def phases(self, task: TaskView) -> list[Phase]:
        train, *rest = super().phases(task)
        faster = 1.0 if task.index else self.config.first_lr / self.config.lr
        rate = faster * self.config.rate()
        group = ParamGroup(tuple(self.lora.parameters()), rate, self.config.weight_decay)
        return [replace(train, groups=(group, *train.groups)), *rest]

    def cross_entropy(self, logits: Tensor, labels: Tensor, task: TaskView) -> Tensor:
        """CE and its reverse over the classes of the task."""
        weights = self.config.forward_loss, self.config.reverse_loss
        return symmetric_cross_entropy(logits, labels, self.head.mask(task.classes), *weights)

    def shaped(self, features: Tensor, cells: Tensor) -> Tensor:
        """Pseudo-features (B, D) / (1 + m · tasks since), another m for each."""
        m = self.config.feature_scale + SPREAD * (torch.rand_like(features[:, :1]) - 0.5)
        return features / (1 + m * age(self.cells.task)[cells, None])

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        stretch = 1 + self.config.feature_scale * age(self.cells.task_of_class())
        logits = F.linear(self.features(images), self.aligned.weight) * stretch
        return Prediction(logits + self.aligned.bias)


def age(tasks: Tensor) -> Tensor:
    """How many tasks came since."""
    return tasks.max() - tasks
