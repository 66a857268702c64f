"""Options of S-Prompt++."""

from pydantic import Field

from hashprompt.methods.frames.configs.keyed import KeyedConfig
from hashprompt.methods.frames.configs.legacy import LegacyLayout
from hashprompt.methods.registry import register


@register(
    "s-prompt-plus",
    title="S-Prompt++",
    summary="a prompt of its own per task, found by the nearest key",
    paper="NeurIPS 2022",
    family="prompts",
)
class SPromptPlusConfig(KeyedConfig):
    """Options of S-Prompt++."""

    legacy_kv_layout: LegacyLayout = False
    layers: tuple[int, ...] = Field((1, 2, 3, 4, 5), description="prompted blocks, 1 is the first")
    prompt_length: int = Field(20, ge=1, le=10_000, description="keys (and values) per prompt")
