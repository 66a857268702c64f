"""Options of S-Prompts."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import DomainConfig


@register("s-prompts", paper="NeurIPS 2022, arXiv 2207.12819", code="iamwangyabin/S-Prompts")
class SPromptsConfig(DomainConfig):
    """S-Prompts: a separate prompt and head per domain, found by k-means centroids.

    Args:
        first_weight_decay: weight decay on the first domain
    """

    first_weight_decay: kinds.NonNegative = 5e-4
