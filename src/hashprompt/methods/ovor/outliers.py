"""Virtual outliers: features just outside those of a task, and the losses that keep them out."""

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.parts.budget import check_room

CHUNK = 4096  # points compared at once, so that memory does not grow with their number


def kth_distance(points: Tensor, among: Tensor, k: int) -> Tensor:
    """Distance (n,) of points (n, D) to the k-th nearest of `among` (m, D), itself included."""
    near = [torch.cdist(some, among).topk(k, largest=False).values for some in points.split(CHUNK)]
    return torch.cat(near)[:, -1]


def virtual_outliers(
    features: Tensor,
    count: int,
    neighbours: int,
    boundary: int,
    draws: int,
    noise: float,
    literal: bool = False,
) -> Tensor:
    """NPOS: noise around the loneliest features; what is farthest from all features is kept.

    Lonely and far mean a large distance to the k-th nearest feature, between unit vectors.

    Args:
        features: (n, D) of a task.
        count: outliers wanted.
        neighbours: k; not more than there are features.
        boundary: how many features are the boundary; not more than there are.
        draws: noise vectors, the same ones around each boundary feature.
        noise: their standard deviation.
        literal: as OVOR's public code does it: noise alone, the boundary is not added, and its
            length is not normalised before it is compared with unit vectors.

    Returns:
        (min(count, boundary · draws), D), the farthest first.
    """
    unit = F.normalize(features, dim=1)
    neighbours, boundary = min(neighbours, len(unit)), min(boundary, len(unit))
    check_room(
        3 * boundary * draws * unit.shape[1], f"{draws:,} draws around {boundary:,} features"
    )
    offsets = noise * torch.randn(draws, unit.shape[1], device=unit.device, dtype=unit.dtype)
    if literal:
        candidates = offsets.repeat(boundary, 1)
        distance = kth_distance(offsets, unit, neighbours).repeat(boundary)
    else:
        lonely = kth_distance(unit, unit, neighbours).topk(boundary).indices
        candidates = (features[lonely][:, None] + offsets).flatten(0, 1)
        distance = kth_distance(F.normalize(candidates, dim=1), unit, neighbours)
    return candidates[distance.topk(min(count, len(candidates))).indices]


def energy(logits: Tensor) -> Tensor:
    """E = −log Σ exp of logits (n, C): low for what the classifier knows, (n,)."""
    return -logits.logsumexp(1)


def energy_loss(inside: Tensor, outside: Tensor, low: float, high: float) -> Tensor:
    """Huber(relu(E_in − low)) + Huber(relu(high − E_out)), each a mean.

    Args:
        inside: (n,) energies of features, wanted below `low`.
        outside: (m,) energies of outliers, wanted above `high`.
    """
    excess, lack = F.relu(inside - low), F.relu(high - outside)
    return F.huber_loss(excess, torch.zeros_like(excess)) + F.huber_loss(
        lack, torch.zeros_like(lack)
    )
