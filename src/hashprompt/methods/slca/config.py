"""Options of SLCA."""

from pydantic import Field

from hashprompt.methods.frames.configs.classifier_alignment import AlignedConfig
from hashprompt.methods.registry import register


@register(
    "slca",
    title="SLCA",
    summary="the whole ViT trained slowly, the classifier aligned with class Gaussians",
    paper="Zhang et al., ICCV 2023",
    family="drift compensation",
)
class SLCAConfig(AlignedConfig):
    """Slow learning of the whole ViT, and alignment of the classifier."""

    batch_size: int = Field(128, ge=1, le=65_536, description="images per step")
    epochs: int = Field(20, ge=1, le=1_000_000, description="epochs on each task")
    lr: float = Field(1e-4, gt=0, description="rate of the ViT")
    head_lr_scale: float = Field(100.0, gt=0, description="rate of the head over that of the ViT")
    weight_decay: float = Field(5e-4, ge=0, description="of everything that is trained")
    decay_at: float = Field(
        0.9, gt=0, le=1, description="share of the epochs after which rates are divided by ten"
    )
    mean_decay: float = Field(
        0.1, ge=0, le=1, description="how much smaller means of old classes are made at most"
    )
    temperature: float = Field(0.1, gt=0, description="of the normalised logits in alignment")
