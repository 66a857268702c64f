"""Options of the linear probe."""

from hashprompt.methods import MethodConfig, kinds, register


@register("linear-probe", family="references")
class LinearProbeConfig(MethodConfig):
    """Linear probe: logistic regression on all frozen features so far, which are stored.

    Args:
        l2: strength of the penalty: scikit-learn's 1/C
    """

    # On both embedded streams 1 to 100 give the same accuracy within a point.
    l2: kinds.Positive = 10.0
