"""Which domain an image comes from: the one with the centroid nearest to its frozen feature."""

import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor, nn

from hashprompt.parts.growing import grow_buffer


def k_means(rows: Tensor, count: int, starts: int) -> tuple[Tensor, Tensor]:
    """Centres (K, D) of rows (n, D), and the group (n,) of each row, the best of `starts`.

    K is `count`, or the number of distinct rows if that is smaller. One thread, since the order of
    sums over several threads changes the last bits.
    """
    from sklearn.cluster import KMeans  # on use: most methods cluster nothing

    clusters = min(count, len(rows.unique(dim=0)))
    with threadpool_limits(1):
        found = KMeans(clusters, n_init=starts, random_state=0).fit(rows.cpu().numpy())
    return torch.from_numpy(found.cluster_centers_), torch.from_numpy(found.labels_)


class Centroids(nn.Module):
    """K centroids for every domain, of features scaled to length 1.

    Args:
        count: K.
        dim: D.
    """

    def __init__(self, count: int, dim: int) -> None:
        super().__init__()
        self.centres: Tensor = nn.Buffer(torch.zeros(0, count, dim))  # (T, K, D)

    def add(self, features: Tensor) -> None:
        """Cluster the features (n, D) of a new domain."""
        unit = F.normalize(features.float(), dim=1)
        count = self.centres.shape[1]
        centres, _ = k_means(unit, count, starts=10)
        # Of fewer images than K some centroids are there twice, which changes no distance.
        rows = torch.arange(count) % len(centres)
        grow_buffer(self, "centres", centres[rows][None])

    def nearest(self, features: Tensor) -> Tensor:
        """The domain (B,) of features (B, D), by the sum of absolute differences."""
        unit = F.normalize(features.float(), dim=1)
        distances = torch.cdist(unit, self.centres.flatten(0, 1), p=1)
        return distances.argmin(1) // self.centres.shape[1]
