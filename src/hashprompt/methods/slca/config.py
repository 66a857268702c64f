"""Options of SLCA."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import AlignedConfig


@register("slca", paper="ICCV 2023, arXiv 2303.05118", code="GengDavid/SLCA")
class SLCAConfig(AlignedConfig):
    """SLCA: the whole ViT trained slowly, the classifier aligned with class Gaussians.

    Args:
        lr: learning rate of the ViT
        decay_at: share of the epochs after which learning rates are divided by ten
        mean_decay: maximum shrinkage of the means of old classes
    """

    lr: kinds.Positive = 1e-4
    head_lr_scale: kinds.Positive = 100.0
    decay_at: kinds.PositiveShare = 0.9
    mean_decay: kinds.Share = 0.1
