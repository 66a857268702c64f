"""Options of SMoPE."""

from pydantic import Field, model_validator

from hashprompt.methods.config import Clip, Count, Epochs, Layers, Samples, ScaleLR, TopK
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.methods.registry import register
from hashprompt.parts.variants import Storage


@register("smope", paper="ICLR 2026")
class SmopeConfig(TuningConfig):
    """SMoPE: one prompt for all tasks, its tokens as sparse experts."""

    epochs: Epochs = 20
    lr: float = Field(0.025, gt=0, description="rate of the prompt")
    head_lr_scale: float = Field(0.2, gt=0, description="rate of the head over that of the prompt")
    scale_lr: ScaleLR = False
    clip: Clip = None
    layers: Layers = (1, 2, 3, 4, 5, 6)
    experts: Count = Field(25, description="N_p, experts of each head of a block")
    top_k: TopK = Field(5, description="K, experts of a head that an image uses")
    noise: float = Field(
        0.4, ge=0, description="ε, what holds back experts in frequent use, share of the span"
    )
    warm_up: float = Field(
        0.5, ge=0, description="share of the epochs in which the first task uses all experts"
    )
    router_weight: float = Field(1e-5, ge=0, description="α_router, chosen keys above the others")
    prototype_weight: float = Field(1e-5, ge=0, description="α_proto, old keys choose as before")
    statistics: Storage = Field("variance", description="what is kept of each class")
    align_epochs: int = Field(
        50, ge=0, le=1_000_000, description="epochs of the head on pseudo-features"
    )
    align_lr: float = Field(1e-5, gt=0, description="rate of that")
    align_samples: Samples | None = Field(
        None, description="pseudo-features per class and epoch; default batch_size"
    )

    @model_validator(mode="after")
    def _fits(self) -> "SmopeConfig":
        if self.top_k > self.experts:
            raise ValueError(f"top_k={self.top_k} must not exceed experts={self.experts}")
        return self
