"""Options of Joint."""

from hashprompt.methods.finetune.config import FinetuneConfig
from hashprompt.methods.registry import register


@register("joint", joint=True)
class JointConfig(FinetuneConfig):
    """Joint: the same model as fine-tuning, trained on all tasks at once: the ceiling."""
