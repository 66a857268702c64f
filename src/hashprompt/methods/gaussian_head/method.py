"""The reference without prompts: frozen features, class Gaussians and a head aligned on them."""

from hashprompt.methods.frames.hide_pipeline import Pipeline
from hashprompt.methods.gaussian_head.config import GaussianHeadConfig


class GaussianHead(Pipeline[GaussianHeadConfig]):
    """The HiDe-Prompt pipeline with nothing injected: what a prompt method must beat."""
