"""Options of EASE."""

from pydantic import Field

from hashprompt.methods.config import BatchSize, Count, Epochs, MethodConfig, Schedule, WeightDecay
from hashprompt.methods.registry import register


@register("ease", paper="CVPR 2024", family="adapters")
class EaseConfig(MethodConfig):
    """EASE: adapters per task; prototypes of old classes are synthesised in new subspaces."""

    batch_size: BatchSize = 48
    epochs: Epochs = 20
    lr: float = Field(0.025, gt=0, description="rate of the adapters and their head (SGD)")
    weight_decay: WeightDecay = 5e-4
    schedule: Schedule = "cosine"
    adapter_width: Count = Field(64, description="hidden units of an adapter")
    alpha: float = Field(
        0.1, ge=0, le=1e6, description="α, weight of the subspaces of all other tasks together"
    )
    beta: float = Field(
        0.0, ge=0, le=1e6, description="β, weight of plain features; 0: they are not used"
    )
