"""Options of the linear probe."""

from pydantic import Field

from hashprompt.methods.config import MethodConfig
from hashprompt.methods.registry import register


@register("linear-probe", family="references")
class LinearProbeConfig(MethodConfig):
    """Linear probe: logistic regression on all plain features so far, which are kept."""

    # On both embedded streams 1 to 100 answer alike (within a point); the middle of them.
    l2: float = Field(
        10.0, gt=0, le=1e12, description="strength of the penalty: scikit-learn's 1/C"
    )
