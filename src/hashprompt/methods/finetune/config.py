"""Options of Fine-tuning."""

from pydantic import Field

from hashprompt.methods.config import Schedule
from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig
from hashprompt.methods.registry import register


@register(
    "finetune",
    title="Fine-tuning",
    summary="sequential prompts and head, no protection: the floor",
    family="references",
)
class FinetuneConfig(TuningConfig):
    """The capacity and training of Hash, nothing else of it."""

    head_lr_scale: float = Field(0.1, gt=0, description="rate of the head over that of prompts")
    schedule: Schedule = Field("step", description="of the rate")
    layers: tuple[int, ...] | None = Field(
        (1, 2, 3, 4), description="prompted blocks, 1 is the first; null: all"
    )
    experts: int = Field(15, ge=2, le=100_000, description="prompts in the pool")
    prompt_length: int = Field(15, ge=1, le=10_000, description="keys (and values) per prompt")
