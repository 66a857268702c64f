"""A scale and a shift of some logits: what corrects a leaning towards new classes."""

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.parts.precision import exact

# Images that are told apart without a mistake would let the scale grow for ever.
DECAY = 1e-4


@torch.enable_grad()
def fit_scale_and_shift(logits: Tensor, labels: Tensor, moved: Tensor) -> Tensor:
    """(α, β) with which α·z + β of some outputs makes the cross-entropy least.

    It is convex, so it is solved, not trained.

    Args:
        logits: (N, C).
        labels: (N,).
        moved: (C,) bool, the outputs that are corrected.
    """
    z = exact(logits.detach())
    start = torch.tensor([1.0, 0.0]).to(z)
    y, moved = labels.to(z.device), moved.to(z.device)
    pair = start.clone().requires_grad_()
    solver = torch.optim.LBFGS(
        [pair],
        max_iter=200,
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def loss() -> float:
        solver.zero_grad()
        corrected = torch.where(moved, pair[0] * z + pair[1], z)
        value = F.cross_entropy(corrected, y) + DECAY * (pair - start).square().sum()
        value.backward()
        return float(value.detach())

    solver.step(loss)
    return pair.detach().to(logits)
