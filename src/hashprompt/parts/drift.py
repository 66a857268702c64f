"""Drift of features while a task was learned, estimated on images that are still there."""

import torch
from torch import Tensor

from hashprompt.parts.precision import exact


class Drift:
    """An affine map from features before a task to features after it.

    Fitted on images of the new task, it estimates where features of old classes, whose images are
    gone, have moved to: x + b + (x − m) W, with W by ridge regression.

    Args:
        before: (N, D) features with the old prompts.
        after: (N, D) of the same images with the new prompts.
        ridge: weight decay of W, as a share of the mean variance; infinite is a mere shift.
    """

    def __init__(self, before: Tensor, after: Tensor, ridge: float) -> None:
        before, after = exact(before), exact(after)
        self.middle = before.mean(0)
        self.shift = (after - before).mean(0)
        centred = before - self.middle
        moved = after - before - self.shift
        gram = centred.T @ centred / len(before)
        self.slope = torch.zeros_like(gram)  # W, (D, D)
        if ridge < torch.inf:
            damping = ridge * gram.diagonal().mean().clamp(min=1e-12)
            eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
            self.slope = torch.linalg.solve(gram + damping * eye, centred.T @ moved / len(before))

    def points(self, x: Tensor) -> Tensor:
        """Where points (…, D) have moved to."""
        own = exact(x)
        return (own + self.shift + (own - self.middle) @ self.slope).to(x)

    def directions(self, x: Tensor) -> Tensor:
        """What differences (…, D) between points have become: x (I + W)."""
        own = exact(x)
        return (own + own @ self.slope).to(x)

    def covariance(self, x: Tensor) -> Tensor:
        """What a covariance (D, D) has become: (I + W)ᵀ x (I + W)."""
        return self.directions(self.directions(x).mT).mT
