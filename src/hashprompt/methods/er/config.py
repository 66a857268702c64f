"""Options of ER."""

from hashprompt.methods import register
from hashprompt.methods.frames.options import RehearsalConfig


@register("er", paper="Chaudhry et al. 2019, arXiv 1902.10486")
class ERConfig(RehearsalConfig):
    """ER: the whole ViT trained on new images and stored ones."""
