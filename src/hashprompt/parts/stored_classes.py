"""What is kept of old classes instead of their images, and how far it is from the truth."""

from typing import NamedTuple

import torch
from torch import Tensor

from hashprompt.parts.cells import Cells
from hashprompt.parts.gaussians import ClassGaussians


class StoredClasses(NamedTuple):
    """The classes of a task, as a learner remembers them."""

    labels: Tensor  # (C,)
    means: Tensor  # (C, D)
    spreads: Tensor  # (C,) root of the variance summed over dimensions

    def distances(self, features: Tensor, labels: Tensor) -> Tensor:
        """How far each stored mean is from that of today's features, in spreads of its class, (C,).

        Args:
            features: (N, D) of the images that were learned, as they are now.
            labels: (N,) their classes.
        """
        now = torch.stack([features[labels == label].mean(0) for label in self.labels])
        return (self.means - now).norm(dim=1) / self.spreads


def stored_classes(gaussians: ClassGaussians, cells: Cells, task: int) -> StoredClasses:
    """Those of one task."""
    own = (cells.task == task).nonzero()[:, 0]
    variances = gaussians.covariances(own.tolist()).diagonal(dim1=1, dim2=2)
    return StoredClasses(cells.label[own], gaussians.means[own], variances.sum(1).sqrt())
