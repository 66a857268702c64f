"""Options of LwF."""

from pydantic import Field

from hashprompt.methods.frames.options import WholeConfig
from hashprompt.methods.registry import register


@register("lwf", paper="ECCV 2016")
class LwFConfig(WholeConfig):
    """LwF: the whole ViT trained, with the previous network as the teacher of old classes."""

    distillation: float = Field(1.0, ge=0, description="α, weight of the teacher's answers")
    temperature: float = Field(2.0, gt=0, description="T, of the teacher's answers")
