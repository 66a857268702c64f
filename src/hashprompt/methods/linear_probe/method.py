"""The linear probe: one logistic regression on the plain features of all images so far.

What one would do without continual learning: no image is kept, but a feature of every image is, and
after each task the classifier is fitted to all of them again. So nothing is forgotten, and what is
stored grows with the images.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Method, Phase, Prediction, TaskView
from hashprompt.methods.linear_probe.config import LinearProbeConfig
from hashprompt.methods.linear_probe.logistic import fit_logistic
from hashprompt.parts.growing import grow_buffer


class LinearProbe(Method):
    """Logistic regression on kept features."""

    keeps = ("features", "labels")
    stores: ClassVar = {"features": "statistics", "weight": "head", "bias": "head"}
    config: LinearProbeConfig

    def __init__(self, config: LinearProbeConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.config = config
        self.register_buffer("features", torch.zeros(0, backbone.dim))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.long))
        self.register_buffer("weight", torch.zeros(0, backbone.dim))
        self.register_buffer("bias", torch.zeros(0))
        self.features: Tensor  # (N, D) of all images so far
        self.labels: Tensor  # (N,)
        self.weight: Tensor  # (C, D)
        self.bias: Tensor  # (C,)

    def phases(self, task: TaskView) -> list[Phase]:
        return [Phase("fit", work=lambda: self._learn(task))]

    def _learn(self, task: TaskView) -> None:
        grow_buffer(self, "features", task.features())
        grow_buffer(self, "labels", task.labels)
        self.weight, self.bias = fit_logistic(self.features, self.labels, self.config.l2)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        plain = self.backbone(images) if plain is None else plain
        with torch.autocast(plain.device.type, enabled=False):  # as precise as the fit
            return Prediction(F.linear(plain.float(), self.weight, self.bias))
