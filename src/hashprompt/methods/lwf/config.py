"""Options of LwF."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import FinetuningConfig


@register("lwf", paper="ECCV 2016, arXiv 1606.09282")
class LwFConfig(FinetuningConfig):
    """LwF: the whole ViT trained; the previous network is the teacher of old classes.

    Args:
        distillation: α, weight of the distillation
        temperature: T of the distillation
    """

    distillation: kinds.NonNegative = 1.0
    temperature: kinds.Positive = 2.0
