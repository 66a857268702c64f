"""Vectors of every task that start orthogonal to those of all tasks before."""

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.parts.precision import capable
from hashprompt.parts.slots import TaskSlots


class OrthogonalSlots(TaskSlots):
    """For each task and each of G groups n vectors; the newest train, the older ones are frozen.

    Args:
        groups: G; vectors of different groups have nothing to do with each other.
        count: n.
        shape: of a vector; it counts as one, however many axes it has.
    """

    def __init__(self, groups: int, count: int, *shape: int) -> None:
        super().__init__((groups, count, *shape), self._start)

    def _start(self, fresh: Tensor) -> None:
        earlier = by_group(self.frozen).flatten(2)
        fresh.copy_(orthogonal_to(earlier, fresh.shape[1]).view_as(fresh))

    def joined(self) -> Tensor:
        """The vectors of all tasks, (G, T · n, …); only the newest have a gradient."""
        return by_group(self.stacked())


def by_group(slots: Tensor) -> Tensor:
    """(T, G, n, …) -> (G, T · n, …)."""
    return slots.transpose(0, 1).flatten(1, 2)


def orthogonal_to(earlier: Tensor, count: int) -> Tensor:
    """Random unit vectors, orthogonal to the earlier ones and to each other (Gram–Schmidt).

    The earlier ones were trained, so they need not be orthogonal among themselves: what is taken
    out of a new vector is its projection on their span, not one projection after the other.

    Space has room for D such vectors. When it is full, learning must continue, so the vectors
    beyond that number are random unit vectors.

    Args:
        earlier: (G, M, D), for each of G groups.
        count: n.

    Returns:
        (G, n, D).
    """
    groups, taken, dim = earlier.shape
    fresh = torch.randn(groups, count, dim, device=earlier.device, dtype=earlier.dtype)
    room = min(count, max(0, dim - taken))
    rows = torch.cat((earlier, fresh[:, :room]), dim=1)
    q, r = (x.to(rows) for x in torch.linalg.qr(capable(rows).mT))
    # A factorisation may flip signs; Gram–Schmidt does not.
    signs = r.diagonal(dim1=1, dim2=2).sign()
    orthogonal = (q * signs[:, None]).mT[:, taken:]
    return torch.cat((orthogonal, F.normalize(fresh[:, room:], dim=2)), dim=1)


def orthogonality_penalty(vectors: Tensor) -> Tensor:
    """‖V Vᵀ − I‖² as a mean over pairs, summed over groups; V is (G, M, D)."""
    eye = torch.eye(vectors.shape[1], device=vectors.device)
    return (vectors @ vectors.mT - eye).square().mean((1, 2)).sum()
