"""Options of SLCA++."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import BatchSize, Count, Epochs, Schedule, WeightDecay
from hashprompt.methods.frames.options import AlignedConfig
from hashprompt.methods.registry import register


@register("slca-plus", paper="Zhang et al., arXiv 2408.08295", scenarios=("class",))
class SLCAPlusConfig(AlignedConfig):
    """SLCA++: low-rank factors, norms and biases trained slowly, the classifier aligned."""

    batch_size: BatchSize = 128
    epochs: Epochs = 20
    lr: float = Field(1e-3, gt=0, description="rate of what is trained of the ViT")
    first_lr: float = Field(5e-3, gt=0, description="rate of the factors in the first task")
    head_lr_scale: float = Field(10.0, gt=0, description="rate of the head over that of the ViT")
    weight_decay: WeightDecay = 5e-4
    schedule: Schedule = "cosine"
    trainable: Literal["all", "last", "norms", "biases", "head"] = Field(
        "biases",
        description="weights of the ViT that are trained beside the low-rank factors; `biases`: "
        "these, norms and the class token; `head`: none",
    )
    rank: Count = Field(4, description="of the low-rank factors")
    lora_scale: float = Field(0.8, gt=0, description="what the low-rank change is multiplied by")
    forward_loss: float = Field(1.0, ge=0, description="weight of the cross-entropy")
    reverse_loss: float = Field(0.1, ge=0, description="weight of the reverse cross-entropy")
    feature_scale: float = Field(
        0.02,
        ge=0,
        description="how much features grow for the head of a task, per task since",
    )
    temperature: float = Field(0.1, gt=0, description="of the normalised logits in alignment")
