"""Options of Fine-tuning."""

from pydantic import Field

from hashprompt.methods.config import Layers, PromptLength, Schedule
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.methods.registry import register


@register("finetune", family="references")
class FinetuneConfig(TuningConfig):
    """Fine-tuning: sequential prompts and head, no protection: the floor.

    The capacity and training of Hash, nothing else of it.
    """

    head_lr_scale: float = Field(0.1, gt=0, description="rate of the head over that of prompts")
    schedule: Schedule = "step"
    layers: Layers = (1, 2, 3, 4)
    experts: int = Field(15, ge=2, le=100_000, description="prompts in the pool")
    prompt_length: PromptLength = 15
