"""Options of MACIL."""

from hashprompt.methods import MethodConfig, kinds, register


@register(
    "macil",
    paper="ICML 2025, arXiv 2502.07560",
    code="fwu11/MACIL",
    scenarios=("class",),
    family="drift compensation",
)
class MACILConfig(MethodConfig):
    """MACIL: low-rank changes of keys and values; drift of class means compensated.

    Args:
        first_epochs: epochs on the first task
        epochs: epochs on each later task
        lr: learning rate of the low-rank changes and the new head
        rank: rank of the change of keys, and of values
        scale: s, factor of cosines in the loss
        shift_width: σ, distance at which new images still count for the drift of an old mean;
            with 1 all images count almost equally
        covariance_weight: weight of the loss that preserves distances within a class
        distillation_weight: weight of the distillation of patch tokens
        align_epochs: epochs of all heads on pseudo-features
        align_lr: learning rate of all heads on pseudo-features
    """

    batch_size: kinds.BatchSize = 48
    first_epochs: kinds.Count = 20
    epochs: kinds.Count = 10
    lr: kinds.Positive = 0.01
    schedule: kinds.Schedule = "cosine"
    rank: kinds.Count = 32
    scale: kinds.Positive = 20.0
    shift_width: kinds.Positive = 1.0
    covariance_weight: kinds.NonNegative = 1.0
    distillation_weight: kinds.NonNegative = 0.4
    align_epochs: kinds.Count = 5
    align_lr: kinds.Positive = 0.01
    align_samples: kinds.Count = 256
