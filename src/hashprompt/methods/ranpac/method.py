"""RanPAC: the backbone adapts to the first task, then random features and ridge regression.

McDonnell et al., NeurIPS 2023. What is learned after the first task are sums over images, so the
order of the tasks does not matter and nothing can be forgotten.
"""

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Phase, Prediction, TaskView
from hashprompt.methods.frames.first_session import ADAPTER_DROPOUT, FirstSession
from hashprompt.methods.ranpac.config import RanPACConfig
from hashprompt.methods.ranpac.ridge import Ridge, choose_ridge
from hashprompt.parts.adapters import Adapters
from hashprompt.parts.precision import exact
from hashprompt.parts.ssf import ScaleShift


class RanPAC(FirstSession):
    """Random projection and ridge regression on a backbone adapted once."""

    keeps = (*FirstSession.keeps, "adapters.", "ssf.", "projection")
    stores = (
        "prompts: adapters ssf; head: projection ridge.weights; "
        "statistics: ridge.gram ridge.moments"
    )
    config: RanPACConfig

    def __init__(self, config: RanPACConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        if config.first_session == "adapter":
            self.adapters = Adapters(backbone, config.adapter_width)
        elif config.first_session == "ssf":
            self.ssf = ScaleShift(backbone)
        self.projection: Tensor = nn.Buffer(torch.randn(backbone.dim, config.projection))  # (D, M)
        self.used_ridge: Tensor = nn.Buffer(torch.zeros(1))  # λ of the last task
        self.ridge = Ridge(config.projection)

    @property
    def adapts(self) -> bool:
        return self.config.first_session != "none"

    def inject(self, training: bool) -> Injection:
        if self.config.first_session == "adapter":
            return self.adapters.inject(ADAPTER_DROPOUT if training else 0)
        return self.ssf.inject() if self.config.first_session == "ssf" else Injection()

    def phases(self, task: TaskView) -> list[Phase]:
        return [*super().phases(task), Phase("ridge", work=lambda: self._learn(task))]

    def project(self, features: Tensor) -> Tensor:
        """h = ReLU(f W), (B, D) -> (B, M)."""
        return (features @ self.projection).relu()

    def _learn(self, task: TaskView) -> None:
        """Add the task to the sums, choose λ on its images alone, solve for all classes."""
        features = task.map(self.features) if self.adapts else task.features()
        order = torch.randperm(len(features)).to(features.device)
        random = exact(self.project(features[order]))
        labels = task.labels[order].to(random.device)
        self.ridge.add(random, labels)
        self.used_ridge.fill_(self.ridge.solve(choose_ridge(random, labels)))

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        if plain is None or self.adapts:
            plain = self.features(images)
        with torch.autocast(plain.device.type, enabled=False):  # as precise as the sums
            return Prediction(self.ridge(self.project(plain.float())))

    def diagnostics(self, task: TaskView) -> dict[str, float]:
        return {"ridge": float(self.used_ridge)}
