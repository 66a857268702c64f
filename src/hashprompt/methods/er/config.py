"""Options of ER."""

from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.methods.registry import register


@register("er", paper="Chaudhry et al. 2019, arXiv 1902.10486")
class ERConfig(RehearsalConfig):
    """ER: the whole ViT trained on new images and stored ones."""
