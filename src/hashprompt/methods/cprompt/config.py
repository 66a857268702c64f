"""Options of CPrompt."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Schedule
from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig
from hashprompt.methods.registry import register


@register(
    "cprompt",
    title="CPrompt",
    summary="prompts per task, trained with all classifiers and all prompts",
    paper="CVPR 2024",
    scenarios=("class",),
    family="prompts",
)
class CPromptConfig(TuningConfig):
    """Options of CPrompt."""

    batch_size: int = Field(16, ge=1, le=65_536, description="images per step")
    epochs: int = Field(18, ge=1, le=1_000_000, description="epochs on each task")
    lr: float = Field(0.01, gt=0, description="rate of prompts and keys")
    scale_lr: bool = Field(False, description="whether rates are multiplied by batch_size/256")
    schedule: Schedule = Field("cosine", description="of the rate")
    optimizer: Literal["adam", "sgd"] = Field("sgd", description="sgd has momentum 0.9")
    weight_decay: float = Field(5e-4, ge=0, description="of everything that is trained")
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    layers: tuple[int, ...] = Field((1, 6), description="blocks before which prompts join")
    prompt_length: int = Field(50, ge=1, le=10_000, description="tokens of each of these prompts")
    consistency: float = Field(1.0, ge=0, description="α, weight of classifier consistency")
    smoothing: float = Field(
        1.2, ge=1, description="τ: temperature of an old classifier that must not win"
    )
    margin: float = Field(0.0, description="lead of the new classifier that is enough")
