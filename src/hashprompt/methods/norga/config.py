"""Options of NoRGa."""

from typing import ClassVar, Literal

from pydantic import Field

from hashprompt.methods.frames.options import TaskPromptConfig
from hashprompt.methods.registry import register


@register("norga", paper="NeurIPS 2024")
class NorgaConfig(TaskPromptConfig):
    """NoRGa: HiDe-Prompt with a gate on the attention to prompts."""

    main: ClassVar[tuple[str, ...]] = (*TaskPromptConfig.main, "gate")
    gate: Literal["tanh", "sigmoid", "gelu", "relu"] = Field("tanh", description="σ of the gate")
