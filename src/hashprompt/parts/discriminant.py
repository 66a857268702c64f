"""A classifier read off the stored Gaussians: no pseudo-features, no epochs, no learning rate."""

import torch
from torch import Tensor

from hashprompt.errors import UserError
from hashprompt.parts.precision import capable, exact

CHUNK = 4  # cells, or rows of a covariance, that are in memory a second time while it is made


class Discriminant:
    """Regularised discriminant analysis over cells.

    Σ'_c = (1 − a)·Σ_c + a·Σ + ε·I with Σ the mean of all Σ_c and ε = ridge · mean(diag Σ);
    score_c(h) = −½ (h − μ_c)ᵀ Σ'_c⁻¹ (h − μ_c) − ½ log det Σ'_c.

    It holds one matrix of D² float64 numbers per cell, or a single one if a = 1.

    Args:
        means: (M, D).
        covariances: (M, D, D).
        shrinkage: a; 1 is the linear discriminant with one matrix for all.
        ridge: share of the mean variance added to the diagonal.
    """

    def __init__(
        self, means: Tensor, covariances: Tensor, shrinkage: float = 0.95, ridge: float = 0.01
    ) -> None:
        means, covariances = exact(means), capable(covariances)
        # By rows: a mean in float64 first converts all that it is given.
        parts = covariances.split(CHUNK, dim=1)
        shared = torch.cat([rows.mean(0, dtype=torch.float64) for rows in parts])
        eye = torch.eye(len(shared), dtype=shared.dtype, device=shared.device)
        common = shrinkage * shared, ridge * shared.diagonal().mean() * eye
        own_share = 1 - shrinkage
        cells = len(covariances) if own_share else 1
        self.whiten = shared.new_empty(cells, *shared.shape)  # L⁻¹ where Σ' = L Lᵀ
        self.log_det = shared.new_empty(cells)
        self.centres = torch.empty_like(means)  # (M, D) L⁻¹ μ
        for start in range(0, len(means), CHUNK):
            chunk = slice(start, start + CHUNK)
            if start < cells:
                own = covariances[chunk].double() if own_share else shared[None]
                lower = _cholesky(own_share * own + common[0] + common[1], start)
                # L⁻¹ once: every image then costs one matrix product per cell.
                whiten = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)
                self.whiten[chunk] = whiten
                self.log_det[chunk] = 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            of_chunk = means[chunk]
            self.centres[chunk] = torch.einsum(
                "mij,mj->mi", whiten.expand(len(of_chunk), -1, -1), of_chunk
            )

    def scores(self, features: Tensor) -> Tensor:
        """Log density (B, M) of features (B, D) under every cell, up to a shared constant."""
        rows = exact(features)
        if len(self.whiten) == 1:
            white = rows @ self.whiten[0].T
            squares = _squared_distances(white, self.centres)
        else:
            white = torch.einsum("mij,bj->mbi", self.whiten, rows) - self.centres[:, None]
            squares = white.square().sum(-1).T
        return (-0.5 * (squares + self.log_det)).float().to(features.device)


def _squared_distances(rows: Tensor, centres: Tensor) -> Tensor:
    """(B, M) of rows (B, D) to centres (M, D), both in float64."""
    if torch.compiler.is_exporting():  # ONNX knows products only; float64 has digits to spare
        squares = rows.square().sum(1, keepdim=True) + centres.square().sum(1)
        return (squares - 2 * rows @ centres.T).clamp(min=0)
    return torch.cdist(rows, centres, compute_mode="donot_use_mm_for_euclid_dist").square()


def _cholesky(matrices: Tensor, first: int) -> Tensor:
    """Lower factors of matrices (m, D, D), those of the cells from `first` on."""
    lower, failed = torch.linalg.cholesky_ex(matrices)
    if failed.any():
        cell = first + int(failed.nonzero()[0, 0])
        raise UserError(
            f"The covariance of class Gaussian {cell + 1} (in the order they were learned) has no "
            "inverse, so no discriminant can be read off it. Use a larger `ridge` or "
            "`shrinkage`."
        )
    return lower
