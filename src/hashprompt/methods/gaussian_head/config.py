"""Options of Gaussian head."""

from hashprompt.methods import register
from hashprompt.methods.frames.options import HeadsConfig


@register("gaussian-head")
class GaussianHeadConfig(HeadsConfig):
    """Gaussian head: frozen features and class Gaussians, without prompts."""
