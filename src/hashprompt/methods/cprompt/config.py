"""Options of CPrompt."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import (
    BatchSize,
    Clip,
    Epochs,
    PromptLength,
    ScaleLR,
    Schedule,
    WeightDecay,
)
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.methods.registry import register


@register("cprompt", paper="CVPR 2024", scenarios=("class",))
class CPromptConfig(TuningConfig):
    """CPrompt: prompts per task, trained with all classifiers and all prompts."""

    batch_size: BatchSize = 16
    epochs: Epochs = 18
    lr: float = Field(0.01, gt=0, description="rate of prompts and keys")
    scale_lr: ScaleLR = False
    schedule: Schedule = "cosine"
    optimizer: Literal["adam", "sgd"] = Field("sgd", description="sgd has momentum 0.9")
    weight_decay: WeightDecay = 5e-4
    clip: Clip = None
    layers: tuple[int, ...] = Field((1, 6), description="blocks before which prompts join")
    prompt_length: PromptLength = Field(50, description="tokens of each of these prompts")
    consistency: float = Field(1.0, ge=0, description="α, weight of classifier consistency")
    smoothing: float = Field(
        1.2, ge=1, description="τ: temperature of an old classifier that must not win"
    )
    margin: float = Field(0.0, description="lead of the new classifier that is enough")
