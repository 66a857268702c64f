"""Prototypes of cells in several feature spaces; newer ones have seen no image of old cells.

A cell (m of M) is a class of a task; its home is the newest of the J subspaces when it came.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.parts.keys import cosine


def synthesised(prototypes: Tensor, home: Tensor) -> Tensor:
    """P̂_{i,n} = softmax(cos(P_{i,i}, P_{n…t,i})) P_{n…t,n} for old tasks i in newer subspaces n.

    Cells of tasks n…t have true prototypes in both subspaces.

    Args:
        prototypes: P, (M, J, D); true in the subspaces up to a cell's own.
        home: (M,) that subspace.

    Returns:
        (M, J, D), P with all others filled in.
    """
    filled = prototypes.clone()
    newest = prototypes.shape[1] - 1
    for own in range(int(home.min()), newest):
        old = home == own
        for new in range(own + 1, newest + 1):
            both = home >= new
            similarity = cosine(prototypes[old, own], prototypes[both, own]).softmax(1)
            filled[old, new] = similarity @ prototypes[both, new]
    return filled


def weighted_cosines(features: Tensor, prototypes: Tensor, weights: Tensor) -> Tensor:
    """Σ_j w_{m,j} cos(f_j, P_{m,j}), (B, M), of features (B, J, D), P (M, J, D) and w (M, J)."""
    with torch.autocast(features.device.type, enabled=False):  # rounded cosines would tie
        directions = weights[..., None] * F.normalize(prototypes, dim=2)
        return F.normalize(features.float(), dim=2).flatten(1) @ directions.flatten(1).T
