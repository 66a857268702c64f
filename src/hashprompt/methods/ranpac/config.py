"""Options of RanPAC."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Count
from hashprompt.methods.frames.options import FirstSessionConfig
from hashprompt.methods.registry import register


@register("ranpac", paper="NeurIPS 2023")
class RanPACConfig(FirstSessionConfig):
    """RanPAC: ridge regression on random features, backbone adapted once."""

    first_session: Literal["adapter", "ssf", "none"] = Field(
        "adapter", description="what adapts the backbone to the first task, and is frozen then"
    )
    adapter_width: Count = Field(64, description="hidden units of an adapter")
    projection: Count = Field(10_000, description="M, random features")
