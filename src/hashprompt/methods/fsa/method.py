"""FSA: the ViT is trained on the first task, then a linear discriminant from running sums.

Panos et al., ICCV 2023: "First session adaptation". What is learned after the first task are sums
over images, so the order of the tasks does not matter and nothing can be forgotten.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Phase, Prediction, TaskView
from hashprompt.methods.frames.first_session import FirstSession
from hashprompt.methods.fsa.config import FsaConfig
from hashprompt.methods.fsa.linear_discriminant import LinearDiscriminant
from hashprompt.methods.kinds import Optimizer
from hashprompt.parts.heads import GrowingLinear
from hashprompt.parts.trained_weights import TrainedWeights


class Fsa(FirstSession):
    """A linear discriminant on a ViT trained once."""

    keeps = (*FirstSession.keeps, "vit.")
    stores = (
        "backbone: vit; head: discriminant.weight discriminant.bias; "
        "statistics: discriminant.classes discriminant.products"
    )
    head = GrowingLinear
    optimizer: ClassVar[Optimizer] = "adam"
    config: FsaConfig

    def __init__(self, config: FsaConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        # FiLM scales and shifts what norms give: a change of their own weights.
        self.vit = TrainedWeights(backbone, "all" if config.adaptation == "full" else "norms")
        self.discriminant = LinearDiscriminant(backbone.dim, config.ridge)

    def inject(self, training: bool) -> Injection:
        return Injection(weights=self.vit.tensors())

    def rate_factor(self, epoch: float, epochs: float) -> float:
        return 0.7 ** int(4 * epoch / epochs)

    def features(self, images: Tensor, training: bool = False) -> Tensor:
        return F.dropout(super().features(images), self.config.dropout, training)

    def phases(self, task: TaskView) -> list[Phase]:
        return [*super().phases(task), Phase("discriminant", work=lambda: self._learn(task))]

    def _learn(self, task: TaskView) -> None:
        self.discriminant.add(task.map(self.features), task.labels)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        features = self.features(images)
        with torch.autocast(features.device.type, enabled=False):  # as precise as the sums
            return Prediction(self.discriminant(features.float()))
