"""Options of APER."""

from typing import Literal

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import FirstSessionConfig


@register("aper", paper="IJCV 2024, arXiv 2303.07338", code="zhoudw-zdw/RevisitingCIL")
class AperConfig(FirstSessionConfig):
    """APER (ADAM): class means of frozen and adapted features, backbone adapted once.

    Args:
        adaptation: what adapts the backbone to the first task; it is frozen afterwards
        adapter_width: hidden units of an adapter
        prompt_length: p, tokens of a block with vpt
        prompt_start: initial values of these tokens; with zero all p tokens stay equal
    """

    adaptation: Literal["adapter", "ssf", "vpt"] = "adapter"
    adapter_width: kinds.Count = 64
    prompt_length: kinds.PromptLength = 5
    prompt_start: Literal["zero", "xavier_uniform"] = "zero"
