"""Options of LwF."""

from pydantic import Field

from hashprompt.methods.frames.configs.full_finetuning import WholeConfig
from hashprompt.methods.registry import register


@register(
    "lwf",
    title="LwF",
    summary="the whole ViT trained, with the previous network as the teacher of old classes",
    paper="ECCV 2016",
    family="regularisation",
)
class LwFConfig(WholeConfig):
    """Options of LwF."""

    distillation: float = Field(1.0, ge=0, description="α, weight of the teacher's answers")
    temperature: float = Field(2.0, gt=0, description="T, of the teacher's answers")
