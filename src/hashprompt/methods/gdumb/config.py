"""Options of GDumb."""

from pydantic import Field

from hashprompt.methods.config import Schedule
from hashprompt.methods.frames.configs.rehearsal import RehearsalConfig
from hashprompt.methods.registry import register


@register(
    "gdumb",
    title="GDumb",
    summary="images of all classes kept greedily; the ViT trained anew on them alone",
    paper="ECCV 2020",
    family="rehearsal",
    keeps_images=True,
)
class GDumbConfig(RehearsalConfig):
    """Options of GDumb."""

    batch_size: int = Field(16, ge=1, le=65_536, description="images per step")
    epochs: int = Field(
        30, ge=1, le=1_000_000, description="epochs on the kept images after each task"
    )
    lr: float = Field(0.05, gt=0, description="rate of everything")
    scale_lr: bool = Field(False, description="whether rates are multiplied by batch_size/256")
    schedule: Schedule = Field("cosine", description="of the rate")
    clip: float | None = Field(10.0, gt=0, description="largest gradient norm")
    weight_decay: float = Field(1e-6, ge=0, description="of everything that is trained")
    cutmix: float = Field(
        1.0, ge=0, description="α of CutMix, which half of the steps use; 0: none do"
    )
