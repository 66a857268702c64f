"""Options of HiDe-Prompt."""

from hashprompt.methods import register
from hashprompt.methods.frames.options import TaskPromptConfig


@register("hide", paper="NeurIPS 2023, arXiv 2310.07234", code="thu-ml/HiDe-Prompt")
class HideConfig(TaskPromptConfig):
    """HiDe-Prompt: a separate prompt per task, found by task inference."""
