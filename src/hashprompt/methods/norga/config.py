"""Options of NoRGa."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.frames.configs.hide_pipeline import PromptConfig
from hashprompt.methods.frames.configs.legacy import LegacyBatchwise, LegacyLayout
from hashprompt.methods.registry import register


@register(
    "norga",
    title="NoRGa",
    summary="HiDe-Prompt with a gate on the attention to prompts",
    paper="NeurIPS 2024",
    family="prompts",
)
class NorgaConfig(PromptConfig):
    """Options of NoRGa."""

    main = (
        "batch_size",
        "epochs",
        "lr",
        "layers",
        "prompt_length",
        "momentum",
        "contrastive",
        "gate",
    )
    legacy_kv_layout: LegacyLayout = False
    batchwise_prompt: LegacyBatchwise = False
    prompt_length: int = Field(20, ge=1, le=10_000, description="keys (and values) per prompt")
    momentum: float = Field(
        0.01, ge=0, le=1, description="m: share of the mean of earlier prompts in a new one"
    )
    gate: Literal["tanh", "sigmoid", "gelu", "relu"] = Field("tanh", description="σ of the gate")
