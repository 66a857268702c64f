"""A classifier read off the stored Gaussians: no pseudo-features, no epochs, no learning rate."""

import torch
from torch import Tensor


class Discriminant:
    """Regularised discriminant analysis over cells.

    Σ'_c = a·Σ_c + (1 − a)·Σ + ε·I with Σ the mean of all Σ_c and ε = ridge · mean(diag Σ);
    score_c(h) = −½ (h − μ_c)ᵀ Σ'_c⁻¹ (h − μ_c) − ½ log det Σ'_c.

    Args:
        means: (M, D).
        covariances: (M, D, D).
        shrinkage: a; 0 is the linear discriminant with one matrix for all.
        ridge: share of the mean variance added to the diagonal.
    """

    def __init__(
        self, means: Tensor, covariances: Tensor, shrinkage: float = 0.05, ridge: float = 0.01
    ) -> None:
        self.means = means.double()
        shared = covariances.mean(0, dtype=torch.float64)
        eye = torch.eye(shared.shape[0], dtype=torch.float64, device=means.device)
        own = covariances.double() if shrinkage else shared[None]
        epsilon = ridge * shared.diagonal().mean()
        matrices = shrinkage * own + (1 - shrinkage) * shared + epsilon * eye
        lower = torch.linalg.cholesky(matrices)
        # L⁻¹ once: every image then costs one matrix product per cell.
        self.whiten = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)
        self.centres = torch.einsum(
            "mij,mj->mi", self.whiten.expand(len(means), -1, -1), self.means
        )
        self.log_det = 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def scores(self, features: Tensor) -> Tensor:
        """Log density (B, M) of features (B, D) under every cell, up to a shared constant."""
        features = features.double()
        if len(self.whiten) == 1:
            white = features @ self.whiten[0].T
            distance = torch.cdist(white, self.centres, compute_mode="donot_use_mm_for_euclid_dist")
            return (-0.5 * (distance.square() + self.log_det)).float()
        white = torch.einsum("mij,bj->mbi", self.whiten, features) - self.centres[:, None]
        return (-0.5 * (white.square().sum(-1).T + self.log_det)).float()
