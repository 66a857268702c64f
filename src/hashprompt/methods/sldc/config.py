"""Options of SLDC."""

from typing import Literal

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import AlignedConfig


@register("sldc", paper="AAAI 2026, arXiv 2511.09926")
class SLDCConfig(AlignedConfig):
    """SLDC: one LoRA for all tasks; class Gaussians compensated for the drift of features.

    Args:
        lr: learning rate of the low-rank factors
        last_rate: final learning rate, as a share of the first
        rank: rank of the low-rank factors
        lora_scale: scale of the low-rank change
        forward_loss: weight of the cross-entropy
        reverse_loss: weight of the reverse cross-entropy
        distill: weight of the change of features of new images; 0: no distillation
        distill_norm: weight of the change of their norms, with distillation
        operator: drift operator of old class Gaussians
        operator_ridge: ridge of the linear operator
        operator_temperature: images per dimension that the linear operator needs
        operator_epochs: epochs of the weakly nonlinear operator
        operator_steps: steps of such an epoch, of 32 images each
        operator_lr: learning rate of the operator; falls to a half
        gate_penalty: penalty on the nonlinear part of the operator
        jitter: variance added to pseudo-features, as a share of the mean variance of a class
        align_epochs: epochs of refining the head
        align_lr: learning rate of refining the head; falls to a tenth
        align_weight_decay: weight decay of refining the head
    """

    batch_size: kinds.BatchSize = 16
    epochs: kinds.Count = 5
    lr: kinds.Positive = 1e-4
    head_lr_scale: kinds.Positive = 10.0
    weight_decay: kinds.NonNegative = 3e-5
    optimizer: kinds.Optimizer = "adamw"
    schedule: kinds.Schedule = "cosine"
    last_rate: kinds.Share = 1 / 3
    trainable: kinds.Trainable = "head"
    rank: kinds.Count = 4
    lora_scale: kinds.Positive = 0.8
    forward_loss: kinds.NonNegative = 0.5
    reverse_loss: kinds.NonNegative = 0.5
    distill: kinds.NonNegative = 1.0
    distill_norm: kinds.NonNegative = 0.1
    operator: Literal["linear", "none", "weakly-nonlinear"] = "weakly-nonlinear"
    operator_ridge: kinds.Positive = 1e-4
    operator_temperature: kinds.NonNegative = 1.0
    operator_epochs: kinds.Count = 10
    operator_steps: kinds.Count = 500
    operator_lr: kinds.Positive = 1e-3
    gate_penalty: kinds.NonNegative = 0.5
    jitter: kinds.NonNegative = 1e-3
    align_epochs: kinds.Count = 6
    align_lr: kinds.Positive = 5e-4
    align_samples: kinds.Count = 1024
    align_weight_decay: kinds.NonNegative = 1e-4
