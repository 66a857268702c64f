"""Options of Joint."""

from hashprompt.methods.finetune.config import FinetuneConfig
from hashprompt.methods.registry import register


@register(
    "joint",
    title="Joint",
    summary="all tasks at once, same capacity: the ceiling",
    joint=True,
    family="references",
)
class JointConfig(FinetuneConfig):
    """Options of Joint."""
