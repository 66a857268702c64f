"""Options of Gaussian head."""

from hashprompt.methods.frames.configs.hide_pipeline import HeadsConfig
from hashprompt.methods.registry import register


@register(
    "gaussian-head",
    title="Gaussian head",
    summary="plain features and class Gaussians, no prompts at all",
    family="statistics",
)
class GaussianHeadConfig(HeadsConfig):
    """Options of Gaussian head."""
