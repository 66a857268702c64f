"""The linear discriminant with one covariance of all images, from sums that only add up."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.parts.cosine import Prototypes
from hashprompt.parts.precision import exact


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
        self._solve()

    def _solve(self) -> None:
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
