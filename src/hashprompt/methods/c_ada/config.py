"""Options of C-ADA."""

from pydantic import Field

from hashprompt.methods.config import Count, Epochs, MethodConfig, Schedule
from hashprompt.methods.registry import register


@register("c-ada", paper="ECCV 2024", family="adapters")
class CAdaConfig(MethodConfig):
    """C-ADA: adapters that every task widens, new units orthogonal to old ones (reconstructed)."""

    epochs: Epochs = 20
    lr: float = Field(1e-3, gt=0, description="rate of all that is trained (Adam)")
    schedule: Schedule = "cosine"
    attention_width: Count = Field(40, description="hidden units a task adds beside attention")
    mlp_width: Count = Field(20, description="hidden units a task adds beside the MLP")
    adapter_scale: float = Field(0.1, gt=0, le=1e6, description="λ, of what the adapters add")
    orthogonality: float = Field(
        1.0, ge=0, le=1e6, description="δ, weight of the overlap of new with old hidden units"
    )
