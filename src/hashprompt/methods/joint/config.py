"""Options of Joint."""

from hashprompt.methods.finetune.config import FinetuneConfig
from hashprompt.methods.registry import register


@register("joint", joint=True)
class JointConfig(FinetuneConfig):
    """Joint: all tasks at once, same capacity: the ceiling."""
