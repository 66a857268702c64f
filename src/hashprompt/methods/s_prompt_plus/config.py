"""Options of S-Prompt++."""

from hashprompt.methods import register
from hashprompt.methods.frames.options import TaskKeyConfig


@register("s-prompt-plus", paper="NeurIPS 2023, arXiv 2310.07234", code="thu-ml/HiDe-Prompt")
class SPromptPlusConfig(TaskKeyConfig):
    """S-Prompt++: a separate prompt per task, found by the nearest key."""
