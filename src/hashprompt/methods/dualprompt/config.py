"""Options of DualPrompt."""

from pydantic import Field, model_validator

from hashprompt.methods.frames.configs.keyed import KeyedConfig
from hashprompt.methods.frames.configs.legacy import LegacyLayout
from hashprompt.methods.registry import register


@register(
    "dualprompt",
    title="DualPrompt",
    summary="a general prompt, and one per task found by the nearest key",
    paper="ECCV 2022",
    family="prompts",
)
class DualPromptConfig(KeyedConfig):
    """Options of DualPrompt."""

    legacy_kv_layout: LegacyLayout = False
    layers: tuple[int, ...] = Field((3, 4, 5), description="blocks of the expert prompts")
    prompt_length: int = Field(20, ge=1, le=10_000, description="keys (and values) per prompt")
    general_layers: tuple[int, ...] = Field((1, 2), description="blocks of the general prompt")
    general_length: int = Field(
        5, ge=1, le=10_000, description="keys (and values) of the general prompt"
    )

    @model_validator(mode="after")
    def _apart(self) -> "DualPromptConfig":
        both = sorted({*self.layers} & {*self.general_layers})
        if both:
            raise ValueError(f"blocks {both} are in layers and in general_layers; choose one")
        return self
