"""FSA: the ViT is trained on the first task, then a linear discriminant from running sums.

Panos et al., ICCV 2023: "First session adaptation". What is learned after the first task are sums
over images, so the order of the tasks does not matter and nothing can be forgotten.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Phase, Prediction, TaskView
from hashprompt.methods.frames.first_session import FirstSession
from hashprompt.methods.fsa.config import FsaConfig
from hashprompt.parts.heads import GrowingLinear, Prototypes
from hashprompt.parts.precision import exact
from hashprompt.parts.trained_weights import TrainedWeights


class Fsa(FirstSession[FsaConfig]):
    """A linear discriminant on a ViT trained once."""

    keeps = (*FirstSession.keeps, "vit.")
    stores = (
        "backbone: vit; head: discriminant.weight discriminant.bias; "
        "statistics: discriminant.classes discriminant.products"
    )

    def __init__(self, config: FsaConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.session_head = GrowingLinear(backbone.dim)
        # FiLM scales and shifts the output of norms: a change of their weights.
        self.vit = TrainedWeights(backbone, "all" if config.adaptation == "full" else "norms")
        self.discriminant = LinearDiscriminant(backbone.dim, config.ridge)

    def inject(self, training: bool) -> Injection:
        return Injection(weights=self.vit.tensors())

    def features(self, images: Tensor, training: bool = False) -> Tensor:
        return F.dropout(super().features(images), self.config.dropout, training)

    def phases(self, task: TaskView) -> list[Phase]:
        adapt = [replace(p, optimizer="adam", schedule=quarters) for p in super().phases(task)]
        return [*adapt, Phase("discriminant", work=lambda: self._learn(task))]

    def _learn(self, task: TaskView) -> None:
        self.discriminant.add(task.map(self.features), task.labels)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        features = self.features(images)
        with torch.autocast(features.device.type, enabled=False):  # as precise as the sums
            return Prediction(self.discriminant(features.float()))


def quarters(epoch: float, epochs: float) -> float:
    """The learning rate of an epoch over that of the first."""
    return 0.7 ** int(4 * epoch / epochs)


# The linear discriminant with one covariance of all images, from sums.


class LinearDiscriminant(nn.Module):
    """logit_c = w_c · f − ½ w_c · μ_c with w_c = S̃⁻¹ μ_c and S̃ = S + ridge · I.

    S is the covariance of all images about their common mean, not about those of their classes. The
    sums are those of all images at once, in whatever order they came.

    Args:
        dim: D, width of the features.
        ridge: added to the diagonal.
    """

    def __init__(self, dim: int, ridge: float = 1.0) -> None:
        super().__init__()
        self.ridge = ridge
        self.classes = Prototypes(dim)
        self.products: Tensor = nn.Buffer(torch.zeros(dim, dim))  # Σ f fᵀ
        self.weight: Tensor = nn.Buffer(torch.zeros(0, dim))  # (C, D)
        self.bias: Tensor = nn.Buffer(torch.zeros(0))  # (C,)

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Let images count: features (N, D) and labels (N,), of old classes or new ones."""
        self.classes.add(features, labels)
        rows = exact(features)
        self.products = self.products + (rows.T @ rows).to(self.products)
        sums, counts = exact(self.classes.sums), exact(self.classes.counts)
        images, total = counts.sum(), sums.sum(0)
        covariance = exact(self.products) - torch.outer(total, total) / images
        covariance /= (images - 1).clamp_min(1)
        covariance.diagonal().add_(self.ridge)
        means = sums / counts[:, None]
        weight = torch.linalg.solve(covariance, means.T).T
        self.weight = weight.to(self.products)
        self.bias = (-0.5 * (weight * means).sum(1)).to(self.products)

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C)."""
        return F.linear(features, self.weight, self.bias)
