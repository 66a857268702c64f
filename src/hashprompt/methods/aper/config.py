"""Options of APER."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.frames.configs.first_session import FirstSessionConfig
from hashprompt.methods.registry import register


@register(
    "aper",
    title="APER (ADAM)",
    summary="mean plain and adapted feature per class, backbone adapted once",
    paper="IJCV 2024",
    family="first-task adaptation",
)
class AperConfig(FirstSessionConfig):
    """Options of APER, first published as ADAM."""

    adaptation: Literal["adapter", "ssf", "vpt"] = Field(
        "adapter", description="what adapts the backbone to the first task, and is frozen then"
    )
    adapter_width: int = Field(64, ge=1, le=100_000, description="hidden units of an adapter")
    prompt_length: int = Field(5, ge=1, le=10_000, description="p, tokens of a block with vpt")
    prompt_start: Literal["zero", "xavier_uniform"] = Field(
        "zero", description="values that these tokens start with; at zero all p stay equal"
    )
