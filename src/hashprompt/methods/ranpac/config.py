"""Options of RanPAC."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.frames.configs.first_session import FirstSessionConfig
from hashprompt.methods.registry import register


@register(
    "ranpac",
    title="RanPAC",
    summary="ridge regression on random features, backbone adapted once",
    paper="NeurIPS 2023",
    family="first-task adaptation",
)
class RanPACConfig(FirstSessionConfig):
    """Options of RanPAC."""

    first_session: Literal["adapter", "ssf", "none"] = Field(
        "adapter", description="what adapts the backbone to the first task, and is frozen then"
    )
    adapter_width: int = Field(64, ge=1, le=100_000, description="hidden units of an adapter")
    projection: int = Field(10_000, ge=1, le=100_000, description="M, random features")
