"""Options of Gaussian head."""

from hashprompt.methods.frames.options import HeadsConfig
from hashprompt.methods.registry import register


@register("gaussian-head")
class GaussianHeadConfig(HeadsConfig):
    """Gaussian head: frozen features and class Gaussians, without prompts."""
