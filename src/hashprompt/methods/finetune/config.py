"""Options of Fine-tuning."""

from typing import Annotated

from pydantic import Field

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import TuningConfig


@register("finetune", family="references")
class FinetuneConfig(TuningConfig):
    """Fine-tuning: prompts and head trained task after task, without protection: the floor.

    The prompts and the training schedule of Hash, nothing else of it.

    Args:
        experts: prompts in the pool
    """

    head_lr_scale: kinds.Positive = 0.1
    schedule: kinds.Schedule = "step"
    layers: kinds.Layers = (1, 2, 3, 4)
    experts: Annotated[kinds.Count, Field(ge=2)] = 15
    prompt_length: kinds.PromptLength = 15
