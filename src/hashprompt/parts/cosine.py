"""Classifiers that compare directions: the prototypes of classes, and a trained cosine head."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.parts.growing import grow_buffer, grow_parameter


def cosine(query: Tensor, keys: Tensor) -> Tensor:
    """Cosine of every query (B, D) with every key (N, D), (B, N)."""
    # In full precision always: rounded cosines would tie, and ties make the choice arbitrary.
    with torch.autocast(query.device.type, enabled=False):
        return F.normalize(query.float(), dim=-1) @ F.normalize(keys.float(), dim=-1).T


class Prototypes(nn.Module):
    """The mean feature of every class, over all its images that ever came.

    Args:
        dim: D, width of the features.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.sums: Tensor = nn.Buffer(torch.zeros(0, dim))  # (C, D)
        self.counts: Tensor = nn.Buffer(torch.zeros(0))  # (C,)

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Let images count: features (N, D) and labels (N,), of old classes or new ones."""
        new = max(0, int(labels.max()) + 1 - len(self.counts))
        grow_buffer(self, "sums", self.sums.new_zeros(new, self.sums.shape[1]))
        grow_buffer(self, "counts", self.counts.new_zeros(new))
        # A product and not `index_add_`, whose order of adding is left to chance on a GPU.
        member = F.one_hot(labels, len(self.counts)).to(features)
        self.sums = self.sums + member.T @ features
        self.counts = self.counts + member.sum(0)

    def means(self) -> Tensor:
        """(C, D)."""
        return self.sums / self.counts[:, None]


class CosineHead(nn.Module):
    """σ · cos(x, w) with a learned σ.

    Args:
        dim: D, width of the features.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(0, dim))
        self.scale = nn.Parameter(torch.ones(1))  # σ

    def grow(self, outputs: int) -> None:
        """Grow to `outputs` rows; rows that exist are kept (never fewer)."""
        new, dim = max(0, outputs - len(self.weight)), self.weight.shape[1]
        bound = 1 / math.sqrt(dim)
        grow_parameter(self, "weight", torch.empty(new, dim).uniform_(-bound, bound))

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C)."""
        return self.scale * cosine(features, self.weight)
