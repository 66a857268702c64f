"""How features moved while a task was learned, as SLDC sees it (`parts/drift.py` is ours).

Both operators are fitted on the directions of features, of the new task's images before and after
it: x and y are features of the same image, divided by their norms.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.parts.drift import Drift
from hashprompt.parts.gaussians import ClassGaussians
from hashprompt.parts.precision import exact

SAMPLES = 10  # pseudo-features per dimension that tell the moments of a moved class


class LinearDrift(Drift):
    """α₁: x W with W = (XᵀX + γ₁ I)⁻¹ XᵀY, drawn towards the identity when images are few.

    W ← (1 − w) W + w I, w = exp(−n / (temperature · D)). A direction in which no image points
    keeps only the share w of its length.

    Args:
        before: (N, D) features before the task.
        after: (N, D) of the same images after it.
        ridge: γ₁.
        temperature: the larger, the nearer to the identity; 0: never.
    """

    def __init__(self, before: Tensor, after: Tensor, ridge: float, temperature: float) -> None:
        x, y = (F.normalize(exact(features), dim=1) for features in (before, after))
        images, dim = x.shape
        eye = torch.eye(dim, dtype=x.dtype, device=x.device)
        fitted = torch.linalg.solve(x.T @ x + ridge * eye, x.T @ y)
        identity = math.exp(-images / (temperature * dim)) if temperature else 0.0  # w
        self.middle = self.shift = torch.zeros_like(eye[0])  # no offset
        self.slope = (1 - identity) * fitted + identity * eye - eye


class WeaklyNonlinearDrift(nn.Module):
    """α₂: T(f) = c₀ f + c₁ f A + c₂ ψ(f), ψ a small MLP, c the softmax of free gates.

    Args:
        dim: D.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Parameter(torch.empty(dim, dim))  # A
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))  # ψ
        self.gates = nn.Parameter(torch.empty(3))
        self.restart()

    @torch.no_grad()
    def restart(self) -> None:
        """Nearly the identity, with a fresh MLP."""
        nn.init.eye_(self.linear)
        self.gates.copy_(torch.tensor([1.0, 0.0, 0.0]))
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    def forward(self, directions: Tensor) -> Tensor:
        """Unit vectors (B, D) before the task -> about unit vectors after it."""
        c = self.gates.softmax(0)
        return c[0] * directions + c[1] * directions @ self.linear + c[2] * self.mlp(directions)

    def penalty(self) -> Tensor:
        """(1 − the share of what is linear)²."""
        return self.gates.softmax(0)[2].square()

    def points(self, features: Tensor) -> Tensor:
        """Where features (B, D) have moved to: T(f / ‖f‖) ‖f‖."""
        norm = features.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return self(features / norm) * norm


@torch.no_grad()
def move_by_samples(gaussians: ClassGaussians, operator: WeaklyNonlinearDrift) -> None:
    """Let all Gaussians follow an operator that is not linear: moments of moved samples.

    The samples have exactly the mean and covariance of their Gaussian, so that what does not move
    stays as it is, however often.
    """
    noise = white_noise(SAMPLES * gaussians.dim, gaussians.means)
    factors = gaussians.sampler().factor
    for cell, factor in enumerate(factors):
        moved = operator.points(gaussians.means[cell] + noise @ factor.mT)
        gaussians.means[cell] = moved.mean(0)
        gaussians.spread[cell] = moved.T.cov()


def white_noise(rows: int, like: Tensor) -> Tensor:
    """Normal noise (rows, D) whose own mean is zero and whose own covariance is the identity.

    Args:
        like: (M, D) says D, type and device.
    """
    drawn = exact(torch.randn(rows, like.shape[1], device=like.device))
    centred = drawn - drawn.mean(0)
    lower = torch.linalg.cholesky(centred.T.cov())
    return torch.linalg.solve_triangular(lower.mT, centred, upper=True, left=False).to(like)
