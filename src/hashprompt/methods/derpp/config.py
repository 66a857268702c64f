"""Options of DER++."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import RehearsalConfig


@register("derpp", paper="NeurIPS 2020, arXiv 2004.07211", code="aimagelab/mammoth")
class DERppConfig(RehearsalConfig):
    """DER++: the whole ViT trained on new images, and on stored images with their old logits.

    Args:
        logit_weight: α, weight of the distance to the stored logits
        replay_weight: β, weight of the cross-entropy of stored images
    """

    logit_weight: kinds.NonNegative = 0.3
    replay_weight: kinds.NonNegative = 0.5
