"""Options of SimpleCIL."""

from hashprompt.methods.config import MethodConfig
from hashprompt.methods.registry import register


@register(
    "simplecil",
    title="SimpleCIL",
    summary="mean plain feature per class, cosine, no training",
    paper="IJCV 2024",
    family="statistics",
)
class SimpleCILConfig(MethodConfig):
    """Options of SimpleCIL."""
