"""What is kept of old images: a Gaussian per cell in feature space, never the images.

A *cell* is a (task, class) pair. Class-incremental streams have one cell per class; in
domain-incremental ones the same class has a cell in every domain.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from hashprompt.parts.centroids import k_means
from hashprompt.parts.drift import Drift
from hashprompt.parts.growing import grow_buffer

Storage = Literal["covariance", "variance", "multi-centroid", "low-rank"]
JITTER = 1e-4  # added to every variance, so that a class of one image still has a Gaussian


class ClassGaussians(nn.Module):
    """Means and spreads of M cells.

    Args:
        dim: D.
        storage: `covariance` keeps D² numbers a cell, `variance` the diagonal, `multi-centroid`
            k-means centres with a diagonal each, `low-rank` the leading directions + a diagonal.
        rank: directions of `low-rank`.
        centroids: centres of `multi-centroid`.
    """

    def __init__(self, dim: int, storage: Storage, rank: int = 16, centroids: int = 10) -> None:
        super().__init__()
        self.dim, self.storage, self.centroids = dim, storage, centroids
        self.rank = rank = min(rank, dim)
        spread = {
            "covariance": (0, dim, dim),
            "variance": (0, dim),
            "multi-centroid": (0, centroids, dim),
            "low-rank": (0, dim, rank),
        }[storage]
        self.register_buffer("means", torch.zeros(0, dim))
        self.register_buffer("spread", torch.zeros(spread))
        self.means: Tensor  # (M, D)
        self.spread: Tensor
        if storage in ("multi-centroid", "low-rank"):
            # multi-centroid: centres (M, K, D); low-rank: what the directions leave, (M, D)
            rest = (0, centroids, dim) if storage == "multi-centroid" else (0, dim)
            self.register_buffer("rest", torch.zeros(rest))
            self.rest: Tensor
        if storage == "multi-centroid":
            self.register_buffer("shares", torch.zeros(0, centroids))
            self.shares: Tensor  # (M, K) of the cell's images

    def __len__(self) -> int:
        return len(self.means)

    def add(self, features: Tensor) -> None:
        """Append the cell of these features (n, D)."""
        features = features.float()
        mean = features.mean(0)
        centred = features - mean
        grow_buffer(self, "means", mean[None])
        if self.storage == "multi-centroid":
            self._add_centroids(features)
            return
        divisor = max(len(features) - 1, 1)
        if self.storage == "variance":
            grow_buffer(self, "spread", (centred.square().sum(0) / divisor)[None] + JITTER)
            return
        covariance = centred.T @ centred / divisor
        if self.storage == "covariance":
            eye = torch.eye(self.dim, device=covariance.device)
            grow_buffer(self, "spread", (covariance + JITTER * eye)[None])
            return
        values, vectors = torch.linalg.eigh(covariance)
        factor = vectors[:, -self.rank :] * values[-self.rank :].clamp(min=0).sqrt()
        rest = (covariance.diagonal() - factor.square().sum(1)).clamp(min=0) + JITTER
        grow_buffer(self, "spread", factor[None])
        grow_buffer(self, "rest", rest[None])

    def _add_centroids(self, features: Tensor) -> None:
        found = k_means(features, self.centroids, starts=1)
        member = torch.from_numpy(found.labels_).to(features.device)
        centres = features.new_zeros(self.centroids, self.dim)
        spread = features.new_full((self.centroids, self.dim), JITTER)
        shares = features.new_zeros(self.centroids)
        for k in range(found.n_clusters):
            rows = features[member == k]
            centres[k] = rows.mean(0)
            spread[k] += rows.var(0, unbiased=False)
            shares[k] = len(rows) / len(features)
        grow_buffer(self, "rest", centres[None])
        grow_buffer(self, "spread", spread[None])
        grow_buffer(self, "shares", shares[None])

    def move(self, cell: int, drift: Drift) -> None:
        """Let a cell follow a drift of the features. Diagonals stay: they only bound the rest."""
        self.means[cell] = drift.points(self.means[cell])
        if self.storage == "covariance":
            once = drift.directions(self.spread[cell])  # Σ (I + W), then (I + W)ᵀ Σ (I + W)
            self.spread[cell] = drift.directions(once.mT).mT
        elif self.storage == "low-rank":
            self.spread[cell] = drift.directions(self.spread[cell].mT).mT
        elif self.storage == "multi-centroid":
            self.rest[cell] = drift.points(self.rest[cell])

    def covariances(self) -> Tensor:
        """Dense covariance of every cell, (M, D, D)."""
        if self.storage == "covariance":
            return self.spread
        if self.storage == "variance":
            return torch.diag_embed(self.spread)
        if self.storage == "low-rank":
            return self.spread @ self.spread.mT + torch.diag_embed(self.rest)
        around = (self.rest - self.means[:, None]) * self.shares[..., None].sqrt()
        within = (self.spread * self.shares[..., None]).sum(1)
        return around.mT @ around + torch.diag_embed(within)

    def sampler(self) -> "GaussianSampler":
        """Draws pseudo-features; made once for many draws, since it holds the factors."""
        return GaussianSampler(self)


class GaussianSampler:
    """Pseudo-features of all cells at once: one batched product instead of a loop."""

    def __init__(self, gaussians: ClassGaussians) -> None:
        self.of = gaussians
        if gaussians.storage == "covariance":
            self.factor = torch.linalg.cholesky_ex(gaussians.spread).L

    def draw(self, per_cell: int) -> tuple[Tensor, Tensor]:
        """(M · n, D) features and the (M · n,) cells they belong to."""
        g = self.of
        cells = torch.arange(len(g), device=g.means.device).repeat_interleave(per_cell)
        noise = torch.randn(len(g), per_cell, g.dim, device=g.means.device)
        if g.storage == "covariance":
            drawn = g.means[:, None] + noise @ self.factor.mT
        elif g.storage == "variance":
            drawn = g.means[:, None] + noise * g.spread.sqrt()[:, None]
        elif g.storage == "low-rank":
            leading = torch.randn(len(g), per_cell, g.rank, device=g.means.device)
            drawn = g.means[:, None] + leading @ g.spread.mT + noise * g.rest.sqrt()[:, None]
        else:
            centre = torch.multinomial(g.shares, per_cell, replacement=True)  # (M, n)
            index = centre[..., None].expand(-1, -1, g.dim)
            drawn = g.rest.gather(1, index) + noise * g.spread.gather(1, index).sqrt()
        return drawn.flatten(0, 1), cells
