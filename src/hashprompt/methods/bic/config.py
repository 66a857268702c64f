"""Options of BiC."""

from pydantic import Field

from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.methods.registry import register


@register("bic", paper="CVPR 2019")
class BiCConfig(RehearsalConfig):
    """BiC: distillation with kept images; two numbers correct the logits of new classes."""

    temperature: float = Field(2.0, gt=0, description="T of the distillation")
    held_out: float = Field(
        0.1, gt=0, lt=1, description="share of the kept images that only fit the correction"
    )
