"""Options of HiDe-Prompt."""

from pydantic import Field

from hashprompt.methods.frames.configs.hide_pipeline import PromptConfig
from hashprompt.methods.frames.configs.legacy import LegacyBatchwise, LegacyLayout
from hashprompt.methods.registry import register


@register(
    "hide",
    title="HiDe-Prompt",
    summary="a prompt of its own per task, found by task inference",
    paper="NeurIPS 2023",
    family="prompts",
)
class HideConfig(PromptConfig):
    """Options of HiDe-Prompt."""

    main = ("batch_size", "epochs", "lr", "layers", "prompt_length", "momentum", "contrastive")
    legacy_kv_layout: LegacyLayout = False
    batchwise_prompt: LegacyBatchwise = False
    prompt_length: int = Field(20, ge=1, le=10_000, description="keys (and values) per prompt")
    momentum: float = Field(
        0.01, ge=0, le=1, description="m: share of the mean of earlier prompts in a new one"
    )
