"""Options of Gaussian head."""

from hashprompt.methods.frames.options import HeadsConfig
from hashprompt.methods.registry import register


@register("gaussian-head")
class GaussianHeadConfig(HeadsConfig):
    """Gaussian head: plain features and class Gaussians, no prompts at all."""
