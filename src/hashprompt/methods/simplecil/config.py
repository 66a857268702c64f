"""Options of SimpleCIL."""

from hashprompt.methods.config import MethodConfig
from hashprompt.methods.registry import register


@register("simplecil", paper="IJCV 2024", family="statistics")
class SimpleCILConfig(MethodConfig):
    """SimpleCIL: mean plain feature per class, cosine, no training."""
