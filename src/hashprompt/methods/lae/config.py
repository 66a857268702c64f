"""Options of LAE."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import BatchSize, Clip, Count, Epochs, Layers, PromptLength
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.methods.registry import register


@register("lae", paper="ICCV 2023", family="adapters")
class LaeConfig(TuningConfig):
    """LAE: adapters, LoRA or prefixes, and a slow copy of them; the surer of the two answers."""

    batch_size: BatchSize = 24
    pet: Literal["adapter", "lora", "prefix"] = Field(
        "adapter", description="what is tuned: adapters beside attention, LoRA of K and V, prefixes"
    )
    layers: Layers = Field((1, 2, 3, 4, 5), description="tuned blocks, 1 is the first")
    adapter_width: Count = Field(5, description="hidden units of an adapter")
    rank: Count = Field(5, description="r, of LoRA")
    prompt_length: PromptLength = Field(10, description="keys (and values) of a prefix")
    head_epochs: Epochs = Field(
        3, description="N_f, epochs of the head alone on every task but the 1st"
    )
    epochs: Epochs = Field(2, description="epochs after them; the first task has both at once")
    clip: Clip = None
    ema_decay: float = Field(
        0.9999, ge=0, le=1, description="α: the offline copy keeps so much of itself in each step"
    )
