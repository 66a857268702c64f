"""Options of MACIL."""

from pydantic import Field

from hashprompt.methods.config import BatchSize, Count, Epochs, MethodConfig, Samples, Schedule
from hashprompt.methods.registry import register


@register("macil", paper="ICML 2025", scenarios=("class",), family="drift compensation")
class MACILConfig(MethodConfig):
    """MACIL: low-rank changes of keys and values; class means follow, covariances are held."""

    batch_size: BatchSize = 48
    first_epochs: Epochs = Field(20, description="epochs on the first task")
    epochs: Epochs = Field(10, description="epochs on each later task")
    lr: float = Field(0.01, gt=0, description="rate of the low-rank changes and the new head")
    schedule: Schedule = "cosine"
    rank: Count = Field(32, description="of the change of keys, and of values")
    scale: float = Field(20.0, gt=0, description="s, of cosines in the loss")
    shift_width: float = Field(
        1.0,
        gt=0,
        le=1e6,
        description="σ: how near to an old mean new images are that tell where it went; with 1 "
        "hardly any image is near, and all count alike",
    )
    covariance_weight: float = Field(
        1.0, ge=0, description="of the loss that keeps distances within a class"
    )
    distillation_weight: float = Field(
        0.4, ge=0, description="of the loss that keeps patch tokens unlike the class token"
    )
    align_epochs: Epochs = Field(5, description="epochs of all heads on pseudo-features")
    align_lr: float = Field(0.01, gt=0, description="rate of that")
    align_samples: Samples = Field(256, description="pseudo-features of each class in an epoch")
