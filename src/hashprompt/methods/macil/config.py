"""Options of MACIL."""

from pydantic import Field

from hashprompt.methods.config import MethodConfig, Schedule
from hashprompt.methods.registry import register


@register(
    "macil",
    title="MACIL",
    summary="low-rank changes of keys and values; class means follow, covariances are held",
    paper="ICML 2025",
    scenarios=("class",),
    family="drift compensation",
)
class MACILConfig(MethodConfig):
    """Options of MACIL."""

    batch_size: int = Field(48, ge=1, le=65_536, description="images per step")
    first_epochs: int = Field(20, ge=1, le=1_000_000, description="epochs on the first task")
    epochs: int = Field(10, ge=1, le=1_000_000, description="epochs on each later task")
    lr: float = Field(0.01, gt=0, description="rate of the low-rank changes and the new head")
    schedule: Schedule = Field("cosine", description="of the rate")
    rank: int = Field(32, ge=1, le=100_000, description="of the change of keys, and of values")
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
    align_epochs: int = Field(
        5, ge=1, le=1_000_000, description="epochs of all heads on pseudo-features"
    )
    align_lr: float = Field(0.01, gt=0, description="rate of that")
    align_samples: int = Field(
        256, ge=1, le=1_000_000, description="pseudo-features of each class in an epoch"
    )
