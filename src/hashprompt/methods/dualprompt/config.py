"""Options of DualPrompt."""

from pydantic import Field, model_validator

from hashprompt.methods.config import PromptLength
from hashprompt.methods.frames.options import KeyedConfig, LegacyLayout
from hashprompt.methods.registry import register


@register("dualprompt", paper="ECCV 2022")
class DualPromptConfig(KeyedConfig):
    """DualPrompt: a general prompt, and one per task found by the nearest key."""

    legacy_kv_layout: LegacyLayout = False
    layers: tuple[int, ...] = Field((3, 4, 5), description="blocks of the expert prompts")
    prompt_length: PromptLength = 20
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
