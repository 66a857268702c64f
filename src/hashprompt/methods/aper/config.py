"""Options of APER."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Count, PromptLength
from hashprompt.methods.frames.options import FirstSessionConfig
from hashprompt.methods.registry import register


@register("aper", paper="IJCV 2024")
class AperConfig(FirstSessionConfig):
    """APER (ADAM): mean plain and adapted feature per class, backbone adapted once."""

    adaptation: Literal["adapter", "ssf", "vpt"] = Field(
        "adapter", description="what adapts the backbone to the first task, and is frozen then"
    )
    adapter_width: Count = Field(64, description="hidden units of an adapter")
    prompt_length: PromptLength = Field(5, description="p, tokens of a block with vpt")
    prompt_start: Literal["zero", "xavier_uniform"] = Field(
        "zero", description="values that these tokens start with; at zero all p stay equal"
    )
