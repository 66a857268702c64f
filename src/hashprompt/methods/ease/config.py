"""Options of EASE."""

from pydantic import Field

from hashprompt.methods.config import MethodConfig, Schedule
from hashprompt.methods.registry import register


@register(
    "ease",
    title="EASE",
    summary="adapters per task; prototypes of old classes are synthesised in new subspaces",
    paper="CVPR 2024",
    family="adapters",
)
class EaseConfig(MethodConfig):
    """Options of EASE."""

    batch_size: int = Field(48, ge=1, le=65_536, description="images per step")
    epochs: int = Field(20, ge=1, le=1_000_000, description="epochs on each task")
    lr: float = Field(0.025, gt=0, description="rate of the adapters and their head (SGD)")
    weight_decay: float = Field(5e-4, ge=0, description="of everything that is trained")
    schedule: Schedule = Field("cosine", description="of the rate")
    adapter_width: int = Field(64, ge=1, le=100_000, description="hidden units of an adapter")
    alpha: float = Field(
        0.1, ge=0, le=1e6, description="α, weight of the subspaces of all other tasks together"
    )
    beta: float = Field(
        0.0, ge=0, le=1e6, description="β, weight of plain features; 0: they are not used"
    )
