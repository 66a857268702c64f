"""Options of HiDe-Prompt."""

from hashprompt.methods.frames.options import TaskPromptConfig
from hashprompt.methods.registry import register


@register("hide", paper="NeurIPS 2023, arXiv 2310.07234", code="thu-ml/HiDe-Prompt")
class HideConfig(TaskPromptConfig):
    """HiDe-Prompt: a separate prompt per task, found by task inference."""
