"""Options of HiDe-Prompt."""

from hashprompt.methods.frames.configs.hide_pipeline import TaskPromptConfig
from hashprompt.methods.registry import register


@register(
    "hide",
    title="HiDe-Prompt",
    summary="a prompt of its own per task, found by task inference",
    paper="NeurIPS 2023",
    family="prompts",
)
class HideConfig(TaskPromptConfig):
    """Options of HiDe-Prompt."""
