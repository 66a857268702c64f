"""Options of EWC."""

from pydantic import Field

from hashprompt.methods.frames.options import WholeConfig
from hashprompt.methods.registry import register


@register("ewc", paper="PNAS 2017")
class EWCConfig(WholeConfig):
    """EWC: the whole ViT trained; weights that mattered to old tasks are held back."""

    penalty: float = Field(1000.0, ge=0, description="λ, how strongly old weights are held")
    decay: float = Field(1.0, ge=0, le=1, description="γ, what a task leaves of the F before it")
    fisher_images: int | None = Field(
        None, ge=1, le=100_000_000, description="images of a task that F is taken of; default: all"
    )
