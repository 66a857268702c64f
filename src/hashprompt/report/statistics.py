"""Whether one row is better than another: differences of runs that saw the same chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

RESAMPLES = 10_000
LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences.

    Args:
        low, high: bootstrap interval of 95 %; None for a single pair.
        p: of the paired t-test that the mean is zero; None where it cannot be told.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    pairs: int

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:+.2f}, {self.high:+.2f}]"
        return f"{self.mean:+.2f}{interval}"


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference | None:
    """Ours minus theirs, pair by pair; None without pairs.

    With two or three pairs the interval is their range: the bootstrap knows nothing else.
    """
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    if not differences:
        return None
    mean = fmean(differences)
    if len(differences) == 1:
        return Difference(mean, None, None, None, 1)
    if len(set(differences)) == 1:  # nothing to resample
        return Difference(mean, mean, mean, None, len(differences))
    import numpy as np
    from scipy.stats import ttest_1samp

    drawn = np.random.default_rng(0).choice(differences, (RESAMPLES, len(differences)))
    low, high = np.quantile(drawn.mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    p = float(ttest_1samp(differences, 0).pvalue)
    return Difference(mean, float(low), float(high), p, len(differences))
