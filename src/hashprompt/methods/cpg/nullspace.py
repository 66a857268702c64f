"""Directions that old tasks do not use, so that updates along them leave old answers alone."""

import torch
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from hashprompt.parts.precision import exact


def knee(values: Tensor) -> int:
    """Where a falling spectrum (n,) goes flat: the middle of its largest second difference.

    A long spectrum is smoothed before, and 1.5 % at either end are left out.
    """
    curve, left_out = exact(values).cpu().numpy(), 0
    if len(curve) >= 128:
        curve, left_out = gaussian_filter1d(curve, sigma=10), int(0.015 * len(curve))
    second = curve[:-2] - 2 * curve[1:-1] + curve[2:]
    return 1 + left_out + int(second[left_out : len(second) - left_out].argmax())


def null_projector(gram: Tensor) -> Tensor:
    """P = N Nᵀ / ‖N Nᵀ‖_F, where N holds the directions from the knee of the spectrum on.

    Args:
        gram: (n, n) XᵀX of the inputs X that should see no change; n is at least 3.
    """
    # Not `eigh`: in single precision it fails on the many equal zeros of experts nobody chose.
    _, values, directions = torch.linalg.svd(gram)  # falling
    rest = directions[knee(values) :]
    projector = rest.T @ rest
    return projector / projector.norm()
