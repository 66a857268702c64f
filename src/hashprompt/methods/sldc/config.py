"""Options of SLDC."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import BatchSize, Count, Epochs, Samples, Schedule, WeightDecay
from hashprompt.methods.frames.options import AlignedConfig
from hashprompt.methods.registry import register


@register("sldc", paper="AAAI 2026, arXiv 2511.09926")
class SLDCConfig(AlignedConfig):
    """SLDC: one LoRA for all tasks; class Gaussians follow the drift of its features."""

    batch_size: BatchSize = 16
    epochs: Epochs = 5
    lr: float = Field(1e-4, gt=0, description="rate of the low-rank factors")
    head_lr_scale: float = Field(10.0, gt=0, description="rate of the head over that of factors")
    weight_decay: WeightDecay = 3e-5
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adamw", description="of factors and head")
    schedule: Schedule = "cosine"
    last_rate: float = Field(
        1 / 3, ge=0, le=1, description="what the rate falls to, as a share of the first"
    )
    trainable: Literal["all", "last", "norms", "biases", "head"] = Field(
        "head", description="weights of the ViT that are trained beside the factors; `head`: none"
    )
    rank: Count = Field(4, description="of the low-rank factors")
    lora_scale: float = Field(0.8, gt=0, description="what the low-rank change is multiplied by")
    forward_loss: float = Field(0.5, ge=0, description="weight of the cross-entropy")
    reverse_loss: float = Field(0.5, ge=0, description="weight of the reverse cross-entropy")
    distill: float = Field(
        1.0, ge=0, description="weight of the change of features of new images; 0: no distillation"
    )
    distill_norm: float = Field(
        0.1, ge=0, description="weight of the change of their norms, with distillation"
    )
    operator: Literal["linear", "none", "weakly-nonlinear"] = Field(
        "weakly-nonlinear", description="how Gaussians of old classes follow the drift"
    )
    operator_ridge: float = Field(1e-4, gt=0, description="damping of the linear operator")
    operator_temperature: float = Field(
        1.0, ge=0, description="how many images per dimension the linear operator asks for"
    )
    operator_epochs: Epochs = Field(10, description="epochs of the weakly nonlinear operator")
    operator_steps: int = Field(
        500, ge=1, le=1_000_000, description="steps of such an epoch, of 32 images each"
    )
    operator_lr: float = Field(1e-3, gt=0, description="its rate; it falls to a half")
    gate_penalty: float = Field(
        0.5, ge=0, description="on what the operator does by its nonlinear part"
    )
    jitter: float = Field(
        1e-3, ge=0, description="of pseudo-features, as a share of the mean variance of a class"
    )
    align_epochs: Epochs = Field(6, description="epochs of refining the head")
    align_lr: float = Field(5e-4, gt=0, description="its rate; it falls to a tenth")
    align_samples: Samples = 1024
    align_weight_decay: WeightDecay = Field(1e-4, description="of the head that is refined")
