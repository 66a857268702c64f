"""Options of EASE."""

from hashprompt.methods import MethodConfig, kinds, register


@register(
    "ease", paper="CVPR 2024, arXiv 2403.12030", code="sun-hailong/CVPR24-Ease", family="adapters"
)
class EaseConfig(MethodConfig):
    """EASE: adapters per task; prototypes of old classes are synthesised in new subspaces.

    Args:
        lr: learning rate of the adapters and their head (SGD)
        adapter_width: hidden units of an adapter
        alpha: α, weight of the subspaces of all other tasks together
        beta: β, weight of frozen features; 0: not used
    """

    batch_size: kinds.BatchSize = 48
    epochs: kinds.Count = 20
    lr: kinds.Positive = 0.025
    weight_decay: kinds.NonNegative = 5e-4
    schedule: kinds.Schedule = "cosine"
    adapter_width: kinds.Count = 64
    alpha: kinds.NonNegative = 0.1
    beta: kinds.NonNegative = 0.0
