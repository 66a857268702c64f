"""Options of GDumb."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import RehearsalConfig


@register("gdumb", paper="ECCV 2020, DOI 10.1007/978-3-030-58536-5_31", code="drimpossible/GDumb")
class GDumbConfig(RehearsalConfig):
    """GDumb: images of all classes stored greedily; the ViT reset, and trained on them only.

    Args:
        epochs: epochs on the stored images after each task
        lr: learning rate
        cutmix: α of CutMix, used in half of the steps; 0: never
    """

    batch_size: kinds.BatchSize = 16
    epochs: kinds.Count = 30
    lr: kinds.Positive = 0.05
    scale_lr: bool = False
    schedule: kinds.Schedule = "cosine"
    clip: kinds.Clip = 10.0
    weight_decay: kinds.NonNegative = 1e-6
    cutmix: kinds.NonNegative = 1.0
