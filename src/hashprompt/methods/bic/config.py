"""Options of BiC."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import RehearsalConfig


@register(
    "bic", paper="CVPR 2019, arXiv 1905.13260", code="wuyuebupt/LargeScaleIncrementalLearning"
)
class BiCConfig(RehearsalConfig):
    """BiC: distillation with stored images; two numbers correct the logits of new classes.

    Args:
        temperature: T of the distillation
        held_out: share of the stored images that only fit the correction
    """

    temperature: kinds.Positive = 2.0
    held_out: kinds.OpenShare = 0.1
