"""Options of the linear probe."""

from pydantic import Field

from hashprompt.methods.config import MethodConfig
from hashprompt.methods.registry import register


@register(
    "linear-probe",
    title="Linear probe",
    summary="logistic regression on all plain features so far, which are kept",
    family="references",
)
class LinearProbeConfig(MethodConfig):
    """Options of the linear probe."""

    # On both embedded streams 1 to 100 answer alike (within a point); the middle of them.
    l2: float = Field(
        10.0, gt=0, le=1e12, description="strength of the penalty: scikit-learn's 1/C"
    )
