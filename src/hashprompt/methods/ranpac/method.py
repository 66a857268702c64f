"""RanPAC: the backbone adapts to the first task, then random features and ridge regression.

McDonnell et al., NeurIPS 2023. What is learned after the first task are sums over images, so the
order of the tasks does not matter and nothing can be forgotten.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Phase, Prediction, TaskView
from hashprompt.methods.frames.first_session import FirstSession
from hashprompt.methods.ranpac.config import RanPACConfig
from hashprompt.parts.adapters import Adapters, ScaleShift
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.precision import exact

RIDGES = tuple(10.0**power for power in range(-8, 9))


class RanPAC(FirstSession[RanPACConfig]):
    """Random projection and ridge regression on a backbone adapted once."""

    keeps = (*FirstSession.keeps, "adapted.", "projection")
    stores = (
        "prompts: adapted; head: projection ridge.weights; statistics: ridge.gram ridge.moments"
    )
    adapted: Adapters | ScaleShift

    def __init__(self, config: RanPACConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        if config.first_session == "adapter":
            self.adapted = Adapters(backbone, config.adapter_width)
        elif config.first_session == "ssf":
            self.adapted = ScaleShift(backbone)
        self.projection: Tensor = nn.Buffer(torch.randn(backbone.dim, config.projection))  # (D, M)
        self.used_ridge: Tensor = nn.Buffer(torch.zeros(1))  # λ of the last task
        self.ridge = Ridge(config.projection)

    @property
    def adapts(self) -> bool:
        return self.config.first_session != "none"

    def inject(self, training: bool) -> Injection:
        return self.adapted.inject(training) if self.adapts else Injection()

    def phases(self, task: TaskView) -> list[Phase]:
        return [*super().phases(task), Phase("ridge", work=lambda: self._learn(task))]

    def project(self, features: Tensor) -> Tensor:
        """h = ReLU(f W), (B, D) -> (B, M)."""
        return (features @ self.projection).relu()

    def _learn(self, task: TaskView) -> None:
        """Add the task to the sums, choose λ on its images only, solve for all classes."""
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


# Ridge regression onto classes from sums.


class Ridge(nn.Module):
    """W = (G + λI)⁻¹ Q with G = Σ h hᵀ and Q = Σ h yᵀ, y one-hot.

    The sums are those of all images at once, in whatever order they came.

    Args:
        dim: M, width of the features h.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gram: Tensor = nn.Buffer(torch.zeros(dim, dim))  # G
        self.moments: Tensor = nn.Buffer(torch.zeros(0, dim))  # (C, M) Qᵀ
        self.weights: Tensor = nn.Buffer(torch.zeros(0, dim))  # (C, M) Wᵀ

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Let images count: features (N, M) and labels (N,), of old classes or new ones."""
        new = max(0, int(labels.max()) + 1 - len(self.moments))
        grow_buffer(self, "moments", self.moments.new_zeros(new, self.moments.shape[1]))
        member = F.one_hot(labels, len(self.moments)).to(features)
        self.gram = self.gram + (features.T @ features).to(self.gram)
        self.moments = self.moments + (member.T @ features).to(self.moments)

    def solve(self, ridge: float) -> float:
        """Set W for this λ, or for the next power of ten at which G + λI is invertible.

        Returns:
            the λ that was used.
        """
        # The sums are rounded: with fewer images than dimensions a tiny λ drowns in that.
        while True:
            matrix = exact(self.gram).clone()
            matrix.diagonal().add_(ridge)
            factor, failed = torch.linalg.cholesky_ex(matrix)
            if not failed:
                break
            ridge *= 10
        self.weights = torch.cholesky_solve(exact(self.moments).T, factor).T.to(self.moments)
        return ridge

    def forward(self, features: Tensor) -> Tensor:
        """(B, M) -> (B, C)."""
        return F.linear(features, self.weights)


def ridge_errors(fit: Tensor, fit_y: Tensor, score: Tensor, score_y: Tensor) -> Tensor:
    """Mean squared error (R,) of every λ in `RIDGES`, with one decomposition for all.

    Args:
        fit: (n, M) features that W is fitted to.
        fit_y: (n, C) their targets.
        score: (m, M) features that are predicted.
        score_y: (m, C) their targets.
    """
    # H = U S Vᵀ gives H'(HᵀH + λI)⁻¹HᵀY = H'V · S / (S² + λ) · UᵀY.
    u, s, vt = torch.linalg.svd(fit, full_matrices=False)
    left, right = score @ vt.T, u.T @ fit_y
    predicted = [left * (s / (s.square() + ridge)) @ right for ridge in RIDGES]
    return torch.stack([F.mse_loss(each, score_y) for each in predicted])


def choose_ridge(features: Tensor, labels: Tensor) -> float:
    """λ that predicts the last fifth of the images best, fitted to the others.

    Args:
        features: (N, M) in random order.
        labels: (N,).
    """
    targets = F.one_hot(labels).to(features)
    cut = int(0.8 * len(labels))
    errors = ridge_errors(features[:cut], targets[:cut], features[cut:], targets[cut:])
    return RIDGES[int(errors.argmin())]
