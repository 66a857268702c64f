"""Options of SMoPE."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import ChosenExperts, UnscaledTuningConfig


@register(
    "smope",
    paper="ICLR 2026, arXiv 2509.24483",
    code="Minhchuyentoancbn/SMoPE",
    scenarios=("class",),
)
class SmopeConfig(ChosenExperts, UnscaledTuningConfig):
    """SMoPE: one prompt for all tasks, its tokens as sparse experts.

    Args:
        lr: learning rate of the prompt
        experts: N_p, experts of each head of a block
        top_k: K, experts of a head that an image uses
        noise: ε, penalty of frequently used experts, as a share of the score span
        warm_up: share of the epochs in which the first task uses all experts
        router_weight: α_router, weight of the loss that separates chosen keys from others
        prototype_weight: α_proto, weight of the loss that preserves the choices of old keys
        align_epochs: epochs of the head on pseudo-features
        align_lr: learning rate of the head on pseudo-features
        align_samples: pseudo-features per class and epoch; default batch_size
    """

    lr: kinds.Positive = 0.025
    head_lr_scale: kinds.Positive = 0.2
    layers: kinds.Layers = (1, 2, 3, 4, 5, 6)
    experts: kinds.Count = 25
    top_k: kinds.Count = 5
    noise: kinds.NonNegative = 0.4
    warm_up: kinds.NonNegative = 0.5
    router_weight: kinds.NonNegative = 1e-5
    prototype_weight: kinds.NonNegative = 1e-5
    statistics: kinds.Storage = "variance"
    align_epochs: kinds.CountOrZero = 50
    align_lr: kinds.Positive = 1e-5
    align_samples: kinds.Count | None = None
