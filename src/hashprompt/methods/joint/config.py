"""Options of Joint."""

from hashprompt.methods import register
from hashprompt.methods.finetune.config import FinetuneConfig


@register("joint", joint=True)
class JointConfig(FinetuneConfig):
    """Joint: the same model as fine-tuning, trained on all tasks at once: the ceiling."""
