"""Statistics of old images: a Gaussian per cell in feature space, never the images.

A *cell* is a (task, class) pair. Class-incremental streams have one cell per class; in
domain-incremental ones the same class has a cell in every domain.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hashprompt.errors import UserError
from hashprompt.parts.budget import check_room
from hashprompt.parts.cells import Cells
from hashprompt.parts.centroids import k_means
from hashprompt.parts.drift import Drift
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.precision import capable, exact
from hashprompt.parts.variants import Storage

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
            "inverse. Use a larger `ridge` or `shrinkage`."
        )
    return lower


JITTER = 1e-4  # added to every variance, so that a class of one image has a Gaussian
ROUNDING = 1e-3  # negative variance that may be rounding, as a share of the largest one


class ClassGaussians(nn.Module):
    """Means and spreads of M cells.

    Args:
        dim: D.
        storage: `covariance` stores D² values a cell, `variance` the diagonal, `multi-centroid`
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
        self.derived: Discriminant | None = None  # from the buffers, so never saved
        self.means: Tensor = nn.Buffer(torch.zeros(0, dim))  # (M, D)
        self.spread: Tensor = nn.Buffer(torch.zeros(spread))
        if storage in ("multi-centroid", "low-rank"):
            # multi-centroid: centres (M, K, D); low-rank: what the directions leave, (M, D)
            rest = (0, centroids, dim) if storage == "multi-centroid" else (0, dim)
            self.rest: Tensor = nn.Buffer(torch.zeros(rest))
        if storage == "multi-centroid":
            # (M, K) of the cell's images
            self.shares: Tensor = nn.Buffer(torch.zeros(0, centroids))

    def __len__(self) -> int:
        return len(self.means)

    def add(self, features: Tensor, labels: Tensor, classes: Sequence[int]) -> None:
        """Append the cells of a task, one per class.

        All at once: growing copies what is there, which is D² numbers for every older cell.

        Args:
            features: (n, D) of the task's images.
            labels: (n,) their classes.
            classes: of the task, in the order in which their cells are to stand.
        """
        cells, self.derived = [], None
        for label in classes:
            rows = features[labels == label].to(self.means.device).float()
            if not len(rows) or not rows.isfinite().all():
                what = "are not finite" if len(rows) else "are missing: the class has no images"
                raise UserError(f"Features of class {label} {what}. Check its images and `lr`.")
            cells.append(self._describe(rows))
        if cells:
            for name in cells[0]:
                grow_buffer(self, name, torch.stack([cell[name] for cell in cells]))

    def select(self, cells: Tensor) -> None:
        """Keep these cells (m,)."""
        self.derived = None
        for name, rows in list(self.named_buffers()):
            setattr(self, name, rows[cells])

    def _describe(self, features: Tensor) -> dict[str, Tensor]:
        """Rows of the buffers for the cell of these features (n, D)."""
        mean = features.mean(0)
        if self.storage == "multi-centroid":
            return {"means": mean, **self._centroids(features)}
        centred = features - mean
        divisor = max(len(features) - 1, 1)
        if self.storage == "variance":
            return {"means": mean, "spread": centred.square().sum(0) / divisor + JITTER}
        covariance = centred.T @ centred / divisor
        if self.storage == "covariance":
            eye = torch.eye(self.dim, device=covariance.device)
            return {"means": mean, "spread": covariance + JITTER * eye}
        values, vectors = (x.to(covariance) for x in torch.linalg.eigh(capable(covariance)))
        factor = vectors[:, -self.rank :] * values[-self.rank :].clamp(min=0).sqrt()
        rest = (covariance.diagonal() - factor.square().sum(1)).clamp(min=0) + JITTER
        return {"means": mean, "spread": factor, "rest": rest}

    def _centroids(self, features: Tensor) -> dict[str, Tensor]:
        found, groups = k_means(features, self.centroids, starts=1)
        member = groups.to(features.device)
        centres = features.new_zeros(self.centroids, self.dim)
        spread = features.new_full((self.centroids, self.dim), JITTER)
        shares = features.new_zeros(self.centroids)
        for k in range(len(found)):
            rows = features[member == k]
            centres[k] = rows.mean(0)
            spread[k] += rows.var(0, unbiased=False)
            shares[k] = len(rows) / len(features)
        return {"rest": centres, "spread": spread, "shares": shares}

    def move(self, drift: Drift) -> None:
        """Compensate all cells for a drift of the features. Diagonals stay the same."""
        self.derived = None
        for cell in range(len(self)):
            self.means[cell] = drift.points(self.means[cell])
            if self.storage == "covariance":
                self.spread[cell] = drift.covariance(self.spread[cell])
            elif self.storage == "low-rank":
                self.spread[cell] = drift.directions(self.spread[cell].mT).mT
            elif self.storage == "multi-centroid":
                self.rest[cell] = drift.points(self.rest[cell])

    def covariances(self, cells: list[int] | slice = slice(None)) -> Tensor:
        """Dense covariance of every cell, or of some, (M, D, D)."""
        spread = self.spread[cells]
        if self.storage == "covariance":
            return spread
        if self.storage == "variance":
            return torch.diag_embed(spread)
        if self.storage == "low-rank":
            return spread @ spread.mT + torch.diag_embed(self.rest[cells])
        shares = self.shares[cells][..., None]
        around = (self.rest[cells] - self.means[cells][:, None]) * shares.sqrt()
        within = (spread * shares).sum(1)
        return around.mT @ around + torch.diag_embed(within)

    def discriminant(self, shrinkage: float, ridge: float) -> Discriminant:
        """The Gaussian classifier of all cells, made on first use after a change."""
        if self.derived is None:
            self.derived = Discriminant(self.means, self.covariances(), shrinkage, ridge)
        return self.derived

    def stored_classes(self, cells: Cells, task: int) -> "StoredClasses":
        """The classes of a task, whose cells are these."""
        own = (cells.task == task).nonzero()[:, 0]
        variances = self.covariances(own.tolist()).diagonal(dim1=1, dim2=2)
        return StoredClasses(cells.label[own], self.means[own], variances.sum(1).sqrt())


class GaussianSampler:
    """Pseudo-features of all cells at once: one batched product instead of a loop.

    Made once for many draws, since it holds the factors.

    Args:
        gaussians: of the cells.
        classes: (M,) class of each cell, to name it in an error; default: its number.
        jitter: added to the variance of every direction, as a share of the mean variance of the
            cell. Jitter is never stored, so it does not add up; for `covariance` only.
    """

    def __init__(
        self, gaussians: ClassGaussians, classes: Tensor | None = None, jitter: float = 0.0
    ) -> None:
        self.of = gaussians
        self.classes = range(len(gaussians)) if classes is None else classes.tolist()
        for rows in gaussians.buffers():
            self._refuse(~rows.flatten(1).isfinite().all(1), "has non-finite values")
        if gaussians.storage == "covariance":
            covariances = gaussians.covariances()
            if jitter:
                mean_variance = covariances.diagonal(dim1=1, dim2=2).mean(1)  # (M,)
                eye = torch.eye(gaussians.dim, device=covariances.device)
                covariances = covariances + jitter * mean_variance[:, None, None] * eye
            self.factor = self._factor(covariances)

    def _factor(self, covariances: Tensor) -> Tensor:
        """A with A Aᵀ = Σ for covariances (M, D, D): Cholesky's, and where that fails V √λ.

        It fails where rounding, or a drift, left a covariance singular or a bit indefinite.
        """
        lower, failed = torch.linalg.cholesky_ex(covariances)
        for cell in failed.nonzero()[:, 0].tolist():
            values, vectors = torch.linalg.eigh(exact(covariances[cell]))
            wrong = values[:1] < -ROUNDING * values[-1:].clamp(min=JITTER)
            self._refuse(wrong, "has directions of negative variance", cell)
            lower[cell] = (vectors * values.clamp(min=0).sqrt()).to(lower)
        return lower

    def _refuse(self, wrong: Tensor, what: str, first: int = 0) -> None:
        """Raise if a cell is wrong; `wrong` (m,) are the cells from `first` on."""
        if wrong.any():
            label = self.classes[first + int(wrong.nonzero()[0, 0])]
            raise UserError(f"The stored Gaussian of class {label} {what}. Use a smaller `lr`.")

    def draw(self, per_cell: int) -> tuple[Tensor, Tensor]:
        """(M · n, D) features and the (M · n,) cells they belong to."""
        g = self.of
        check_room(2 * len(g) * per_cell * g.dim, f"{per_cell:,} pseudo-features of each class")
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


class StoredClasses(NamedTuple):
    """The stored statistics of the classes of a task."""

    labels: Tensor  # (C,)
    means: Tensor  # (C, D)
    spreads: Tensor  # (C,) root of the variance summed over dimensions

    def distances(self, features: Tensor, labels: Tensor) -> Tensor:
        """Distance of each stored mean to that of today's features, in spreads of its class, (C,).

        Args:
            features: (N, D) today's features of the learned images.
            labels: (N,) their classes.
        """
        now = torch.stack([features[labels == label].mean(0) for label in self.labels])
        return (self.means - now).norm(dim=1) / self.spreads
