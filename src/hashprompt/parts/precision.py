"""Float64 where it is needed, also beside a device that has none: Apple's MPS.

No other file of the package may ask for float64 on the device of a tensor it was given.
"""

import torch
from torch import Tensor

LIMITED = ("mps",)  # no float64, and not all of linear algebra


def capable(tensor: Tensor) -> Tensor:
    """The tensor, on the CPU if its device lacks float64 and decompositions such as QR.

    Results go back with `.to(tensor)`. Anywhere else nothing is copied.
    """
    return tensor.cpu() if tensor.device.type in LIMITED else tensor


def exact(tensor: Tensor) -> Tensor:
    """The tensor in float64, on its device or, if that has none, on the CPU."""
    return capable(tensor).double()


def add_exactly(total: Tensor, values: Tensor) -> Tensor:
    """A running sum in float32 with about the precision of float64.

    A float32 sum of millions of images would stand still; here what rounding drops is kept (Knuth's
    two-sum). Such sums can be added row by row, so several devices may add theirs.

    Args:
        total: (2, n) the sum, and what its rounding has dropped so far; (n,) counts as nothing
            dropped (checkpoints of version 0.1.0).
        values: (n,) to be added.
    """
    high, low = total if total.ndim == 2 else (total, torch.zeros_like(total))
    rounded = high + values
    added = rounded - high
    dropped = (high - (rounded - added)) + (values - added)
    return torch.stack((rounded, low + dropped))
