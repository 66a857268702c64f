"""Options of SLCA."""

from pydantic import Field

from hashprompt.methods.config import BatchSize, Epochs, WeightDecay
from hashprompt.methods.frames.options import AlignedConfig
from hashprompt.methods.registry import register


@register("slca", paper="Zhang et al., ICCV 2023")
class SLCAConfig(AlignedConfig):
    """SLCA: the whole ViT trained slowly, the classifier aligned with class Gaussians."""

    batch_size: BatchSize = 128
    epochs: Epochs = 20
    lr: float = Field(1e-4, gt=0, description="rate of the ViT")
    head_lr_scale: float = Field(100.0, gt=0, description="rate of the head over that of the ViT")
    weight_decay: WeightDecay = 5e-4
    decay_at: float = Field(
        0.9, gt=0, le=1, description="share of the epochs after which rates are divided by ten"
    )
    mean_decay: float = Field(
        0.1, ge=0, le=1, description="how much smaller means of old classes are made at most"
    )
    temperature: float = Field(0.1, gt=0, description="of the normalised logits in alignment")
