"""Options of EWC."""

from pydantic import Field

from hashprompt.methods.frames.configs.full_finetuning import WholeConfig
from hashprompt.methods.registry import register


@register(
    "ewc",
    title="EWC",
    summary="the whole ViT trained; weights that mattered to old tasks are held back",
    paper="PNAS 2017",
    family="regularisation",
)
class EWCConfig(WholeConfig):
    """Options of EWC."""

    penalty: float = Field(1000.0, ge=0, description="λ, how strongly old weights are held")
    decay: float = Field(1.0, ge=0, le=1, description="γ, what a task leaves of the F before it")
    fisher_images: int | None = Field(
        None, ge=1, le=100_000_000, description="images of a task that F is taken of; default: all"
    )
