"""Class Gaussians that share covariances: a mean for each class, and little more."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from hashprompt.parts.drift import Drift
from hashprompt.parts.gaussians import ClassGaussians
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.precision import exact
from hashprompt.parts.variants import Storage


class PooledGaussians(ClassGaussians):
    """Means of M cells, and one covariance for all cells that were added together.

    It is the mean of their covariances, so a linear discriminant (shrinkage 1), which knows the
    mean of all covariances alone, is the same as that of Gaussians with one each.

    Args:
        dim: D.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim, "pooled")
        # (M,) which of the G covariances in `spread` (G, D, D) a cell has
        self.group: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.int64))

    def _grow(self, rows: dict[str, Tensor]) -> None:
        group = torch.full((len(rows["means"]),), len(self.spread), device=self.group.device)
        grow_buffer(self, "means", rows["means"])
        grow_buffer(self, "spread", rows["spread"].mean(0, keepdim=True))
        grow_buffer(self, "group", group)

    def select(self, cells: Tensor) -> None:
        used, self.group = self.group[cells].unique(return_inverse=True)
        self.means, self.spread = self.means[cells], self.spread[used]

    def merge(self) -> None:
        """Let all cells share one covariance: exact as long as they all move alike."""
        shares = exact(torch.bincount(self.group, minlength=len(self.spread)))
        mean = torch.tensordot(shares / shares.sum(), exact(self.spread), 1)
        self.spread, self.group = mean.to(self.spread)[None], torch.zeros_like(self.group)

    def move(self, cells: Sequence[int], drift: Drift) -> None:
        moving = torch.zeros_like(self.group, dtype=torch.bool)
        moving[list(cells)] = True
        groups = self.group[moving].unique()
        if not moving[torch.isin(self.group, groups)].all():
            raise ValueError("classes that share a covariance must move together")
        self.means[moving] = drift.points(self.means[moving])
        for group in groups.tolist():
            self.spread[group] = drift.covariance(self.spread[group])

    def covariances(self, cells: list[int] | slice = slice(None)) -> Tensor:
        group = self.group[cells]
        if len(self.spread) == 1:  # one matrix in memory, however many classes there are
            return self.spread.expand(len(group), -1, -1)
        return self.spread[group]

    def rows(self) -> Iterator[Tensor]:
        yield self.means
        yield self.covariances()


def make_gaussians(
    dim: int, storage: Storage, rank: int = 16, centroids: int = 10
) -> ClassGaussians:
    """Gaussians of no cell yet; arguments as of :class:`ClassGaussians`."""
    if storage == "pooled":
        return PooledGaussians(dim)
    return ClassGaussians(dim, storage, rank, centroids)
