"""Options of SLCA++."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Schedule
from hashprompt.methods.frames.configs.classifier_alignment import AlignedConfig
from hashprompt.methods.registry import register


@register(
    "slca-plus",
    title="SLCA++",
    summary="low-rank factors, norms and biases trained slowly, the classifier aligned",
    paper="Zhang et al., arXiv 2408.08295",
    scenarios=("class",),
    family="drift compensation",
)
class SLCAPlusConfig(AlignedConfig):
    """SLCA with low-rank learning and a symmetric loss."""

    batch_size: int = Field(128, ge=1, le=65_536, description="images per step")
    epochs: int = Field(20, ge=1, le=1_000_000, description="epochs on each task")
    lr: float = Field(1e-3, gt=0, description="rate of what is trained of the ViT")
    first_lr: float = Field(5e-3, gt=0, description="rate of the factors in the first task")
    head_lr_scale: float = Field(10.0, gt=0, description="rate of the head over that of the ViT")
    weight_decay: float = Field(5e-4, ge=0, description="of everything that is trained")
    schedule: Schedule = Field("cosine", description="of the rate")
    trainable: Literal["all", "last", "norms", "biases", "head"] = Field(
        "biases",
        description="weights of the ViT that are trained beside the low-rank factors; `biases`: "
        "these, norms and the class token; `head`: none",
    )
    rank: int = Field(4, ge=1, le=100_000, description="of the low-rank factors")
    lora_scale: float = Field(0.8, gt=0, description="what the low-rank change is multiplied by")
    forward_loss: float = Field(1.0, ge=0, description="weight of the cross-entropy")
    reverse_loss: float = Field(0.1, ge=0, description="weight of the reverse cross-entropy")
    feature_scale: float = Field(
        0.02,
        ge=0,
        description="how much features grow for the head of a task, per task since",
    )
    temperature: float = Field(0.1, gt=0, description="of the normalised logits in alignment")
