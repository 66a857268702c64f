"""Options of EWC."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import FinetuningConfig


@register("ewc", paper="PNAS 2017, arXiv 1612.00796")
class EWCConfig(FinetuningConfig):
    """EWC: the whole ViT trained; a penalty keeps weights that mattered to old tasks.

    Args:
        penalty: λ, weight of the penalty
        decay: γ, factor of the old Fisher information after each task
        fisher_images: images of a task for its Fisher information; default: all
    """

    penalty: kinds.NonNegative = 1000.0
    decay: kinds.Share = 1.0
    fisher_images: kinds.Count | None = None
