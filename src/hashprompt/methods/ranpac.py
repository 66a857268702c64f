"""RanPAC: the backbone adapts to the first task, then random features and ridge regression.

McDonnell et al., NeurIPS 2023. What is learned after the first task are sums over images, so the
order of the tasks does not matter and nothing can be forgotten.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import (
    Batch,
    Method,
    ParamGroup,
    Phase,
    Prediction,
    TaskView,
)
from hashprompt.methods.configs.ranpac import INFO, RanPACConfig
from hashprompt.parts.adapters import Adapters
from hashprompt.parts.cosine import CosineHead
from hashprompt.parts.precision import exact
from hashprompt.parts.ridge import Ridge, choose_ridge
from hashprompt.parts.ssf import ScaleShift

DROPOUT = 0.1  # of the adapters' hidden units, while they are trained


class RanPAC(Method):
    """Random projection and ridge regression on a backbone adapted once."""

    info = INFO
    keeps = ("adapters.", "ssf.", "session_head.weight", "projection")
    stores: ClassVar = {
        **{"adapters": "prompts", "ssf": "prompts", "projection": "head", "ridge.weights": "head"},
        **{"ridge.gram": "statistics", "ridge.moments": "statistics"},
    }
    config: RanPACConfig

    def __init__(self, config: RanPACConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.config = config
        if config.first_session == "adapter":
            self.adapters = Adapters(backbone, config.adapter_width)
        elif config.first_session == "ssf":
            self.ssf = ScaleShift(backbone)
        if config.first_session != "none":
            self.session_head = CosineHead(backbone.dim)  # read in the first session only
        self.register_buffer("projection", torch.randn(backbone.dim, config.projection))
        self.register_buffer("used_ridge", torch.zeros(1))
        self.projection: Tensor  # (D, M)
        self.used_ridge: Tensor  # λ of the last task
        self.ridge = Ridge(config.projection)

    # The first session. --------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        if self._adapts(task):
            self.session_head.grow(max(task.classes) + 1)

    def _adapts(self, task: TaskView) -> bool:
        return task.index == 0 and self.config.first_session != "none"

    def phases(self, task: TaskView) -> list[Phase]:
        config = self.config
        solve = Phase("ridge", work=lambda: self._learn(task))
        if not self._adapts(task):
            return [solve]
        adapt = Phase(
            "adapt",
            step=self._step,
            groups=[ParamGroup(tuple(self.parameters()), config.lr, config.weight_decay)],
            epochs=config.epochs,
            batch_size=config.batch_size,
            optimizer="sgd",
            schedule="cosine",
        )
        return [adapt, solve]

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.session_head(self.features(batch.inputs, training=True))
        return {"ce": F.cross_entropy(logits, batch.labels)}

    def features(self, images: Tensor, training: bool = False) -> Tensor:
        """Features (B, D) of images (B, 3, S, S) under what the first session made."""
        if self.config.first_session == "adapter":
            return self.backbone(images, self.adapters.inject(DROPOUT if training else 0))
        if self.config.first_session == "ssf":
            return self.backbone(images, self.ssf.inject())
        return self.backbone(images)

    # Every session. ------------------------------------------------------------------------

    def project(self, features: Tensor) -> Tensor:
        """h = ReLU(f W), (B, D) -> (B, M)."""
        return (features @ self.projection).relu()

    def _learn(self, task: TaskView) -> None:
        """Add the task to the sums, choose λ on its images alone, solve for all classes."""
        plain = self.config.first_session == "none"
        features = task.features() if plain else task.map(self.features)
        order = torch.randperm(len(features)).to(features.device)
        random = exact(self.project(features[order]))
        labels = task.labels[order].to(random.device)
        self.ridge.add(random, labels)
        self.used_ridge.fill_(self.ridge.solve(choose_ridge(random, labels)))

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        if plain is None or self.config.first_session != "none":
            plain = self.features(images)
        with torch.autocast(plain.device.type, enabled=False):  # as precise as the sums
            return Prediction(self.ridge(self.project(plain.float())))

    def diagnostics(self) -> dict[str, float]:
        return {"ridge": float(self.used_ridge)}
