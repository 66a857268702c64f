"""Options of SimpleCIL."""

from hashprompt.methods import MethodConfig, register


@register(
    "simplecil",
    paper="IJCV 2024, arXiv 2303.07338",
    code="zhoudw-zdw/RevisitingCIL",
    family="statistics",
)
class SimpleCILConfig(MethodConfig):
    """SimpleCIL: mean frozen feature per class, cosine, no training."""
