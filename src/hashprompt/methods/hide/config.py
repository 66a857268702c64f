"""Options of HiDe-Prompt."""

from hashprompt.methods.frames.options import TaskPromptConfig
from hashprompt.methods.registry import register


@register("hide", paper="NeurIPS 2023")
class HideConfig(TaskPromptConfig):
    """HiDe-Prompt: a prompt of its own per task, found by task inference."""
