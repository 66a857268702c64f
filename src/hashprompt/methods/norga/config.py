"""Options of NoRGa."""

from typing import ClassVar, Literal

from pydantic import Field

from hashprompt.methods.frames.configs.hide_pipeline import TaskPromptConfig
from hashprompt.methods.registry import register


@register(
    "norga",
    title="NoRGa",
    summary="HiDe-Prompt with a gate on the attention to prompts",
    paper="NeurIPS 2024",
    family="prompts",
)
class NorgaConfig(TaskPromptConfig):
    """Options of NoRGa."""

    main: ClassVar[tuple[str, ...]] = (*TaskPromptConfig.main, "gate")
    gate: Literal["tanh", "sigmoid", "gelu", "relu"] = Field("tanh", description="σ of the gate")
