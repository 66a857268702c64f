"""Options of RanPAC."""

from typing import Literal

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import FirstSessionConfig


@register("ranpac", paper="NeurIPS 2023, arXiv 2307.02251", code="RanPAC/RanPAC")
class RanPACConfig(FirstSessionConfig):
    """RanPAC: ridge regression on random features, backbone adapted once.

    Args:
        first_session: what adapts the backbone to the first task; it is frozen afterwards
        adapter_width: hidden units of an adapter
        projection: M, random features
    """

    first_session: Literal["adapter", "ssf", "none"] = "adapter"
    adapter_width: kinds.Count = 64
    projection: kinds.Count = 10_000
