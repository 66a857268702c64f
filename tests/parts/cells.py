"""Statistics of a single class, for tests."""

import torch
from torch import Tensor

from hashprompt.parts.gaussians import ClassGaussians


def add_cell(stats: ClassGaussians, features: Tensor) -> None:
    """Append the cell of these features (n, D)."""
    stats.add(features, torch.zeros(len(features)), (0,))
