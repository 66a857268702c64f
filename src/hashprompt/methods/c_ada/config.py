"""Options of C-ADA."""

from pydantic import Field

from hashprompt.methods.config import MethodConfig, Schedule
from hashprompt.methods.registry import register


@register(
    "c-ada",
    title="C-ADA",
    summary="adapters that every task widens, new units orthogonal to old ones (a reconstruction)",
    paper="ECCV 2024",
    family="adapters",
)
class CAdaConfig(MethodConfig):
    """Options of C-ADA."""

    epochs: int = Field(20, ge=1, le=1_000_000, description="epochs on each task")
    lr: float = Field(1e-3, gt=0, description="rate of all that is trained (Adam)")
    schedule: Schedule = Field("cosine", description="of the rate")
    attention_width: int = Field(
        40, ge=1, le=100_000, description="hidden units a task adds beside attention"
    )
    mlp_width: int = Field(
        20, ge=1, le=100_000, description="hidden units a task adds beside the MLP"
    )
    adapter_scale: float = Field(0.1, gt=0, le=1e6, description="λ, of what the adapters add")
    orthogonality: float = Field(
        1.0, ge=0, le=1e6, description="δ, weight of the overlap of new with old hidden units"
    )
