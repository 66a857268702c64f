"""Options of GDumb."""

from pydantic import Field

from hashprompt.methods.config import BatchSize, Clip, Epochs, ScaleLR, Schedule, WeightDecay
from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.methods.registry import register


@register("gdumb", paper="ECCV 2020")
class GDumbConfig(RehearsalConfig):
    """GDumb: images of all classes kept greedily; the ViT trained anew on them alone."""

    batch_size: BatchSize = 16
    epochs: Epochs = Field(30, description="epochs on the kept images after each task")
    lr: float = Field(0.05, gt=0, description="rate of everything")
    scale_lr: ScaleLR = False
    schedule: Schedule = "cosine"
    clip: Clip = 10.0
    weight_decay: WeightDecay = 1e-6
    cutmix: float = Field(
        1.0, ge=0, description="α of CutMix, which half of the steps use; 0: none do"
    )
