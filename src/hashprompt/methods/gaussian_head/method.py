"""The reference without prompts: frozen features, class Gaussians and a head aligned on them."""

from hashprompt.methods.frames.hide_pipeline import Pipeline


class GaussianHead(Pipeline):
    """The HiDe-Prompt pipeline with nothing injected: what a prompt method must beat."""
