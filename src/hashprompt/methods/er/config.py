"""Options of ER."""

from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.methods.registry import register


@register("er", paper="Chaudhry et al. 2019")
class ERConfig(RehearsalConfig):
    """ER: the whole ViT trained on new images and kept ones."""
