"""Options of ER."""

from hashprompt.methods.frames.configs.rehearsal import RehearsalConfig
from hashprompt.methods.registry import register


@register(
    "er",
    title="ER",
    summary="the whole ViT trained on new images and kept ones",
    paper="Chaudhry et al. 2019",
    family="rehearsal",
    keeps_images=True,
)
class ERConfig(RehearsalConfig):
    """Options of ER."""
