"""Options of LAE."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig
from hashprompt.methods.registry import register


@register(
    "lae",
    title="LAE",
    summary="adapters, LoRA or prefixes, and a slow copy of them; the surer of the two answers",
    paper="ICCV 2023",
    family="adapters",
)
class LaeConfig(TuningConfig):
    """Options of LAE."""

    batch_size: int = Field(24, ge=1, le=65_536, description="images per step")
    pet: Literal["adapter", "lora", "prefix"] = Field(
        "adapter", description="what is tuned: adapters beside attention, LoRA of K and V, prefixes"
    )
    layers: tuple[int, ...] = Field((1, 2, 3, 4, 5), description="tuned blocks, 1 is the first")
    adapter_width: int = Field(5, ge=1, le=100_000, description="hidden units of an adapter")
    rank: int = Field(5, ge=1, le=100_000, description="r, of LoRA")
    prompt_length: int = Field(10, ge=1, le=10_000, description="keys (and values) of a prefix")
    head_epochs: int = Field(
        3, ge=1, le=1_000_000, description="N_f, epochs of the head alone on every task but the 1st"
    )
    epochs: int = Field(
        2, ge=1, le=1_000_000, description="epochs after them; the first task has both at once"
    )
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    ema_decay: float = Field(
        0.9999, ge=0, le=1, description="α: the offline copy keeps so much of itself in each step"
    )
