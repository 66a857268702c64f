"""Options of SLCA++."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import AlignedConfig


@register("slca-plus", paper="arXiv 2408.08295", code="GengDavid/SLCA", scenarios=("class",))
class SLCAPlusConfig(AlignedConfig):
    """SLCA++: low-rank factors, norms and biases trained slowly, the classifier aligned.

    Args:
        lr: learning rate of the trained weights of the ViT
        first_lr: learning rate of the factors in the first task
        rank: rank of the low-rank factors
        lora_scale: scale of the low-rank change
        forward_loss: weight of the cross-entropy
        reverse_loss: weight of the reverse cross-entropy
        feature_scale: growth of features for the head of an old task, per later task
    """

    lr: kinds.Positive = 1e-3
    first_lr: kinds.Positive = 5e-3
    head_lr_scale: kinds.Positive = 10.0
    schedule: kinds.Schedule = "cosine"
    trainable: kinds.Trainable = "biases"
    rank: kinds.Count = 4
    lora_scale: kinds.Positive = 0.8
    forward_loss: kinds.NonNegative = 1.0
    reverse_loss: kinds.NonNegative = 0.1
    feature_scale: kinds.NonNegative = 0.02
