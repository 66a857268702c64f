"""Float64 where it is needed, also with a device that has none: Apple's MPS.

No other file of the package may ask for float64 on the device of a tensor it was given.
"""

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
