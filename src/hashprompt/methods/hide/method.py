"""HiDe-Prompt: a separate prompt for every task, found by task inference.

Wang et al., NeurIPS 2023. The whole of it is the pipeline.
"""

from hashprompt.methods.frames.hide_pipeline import TaskPromptPipeline
from hashprompt.methods.hide.config import HideConfig


class Hide(TaskPromptPipeline[HideConfig]):
    """A separate prompt for every task."""
