"""Paired differences: runs of two rows with the same seed and class order."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

RESAMPLES = 10_000
LEVEL = 0.95
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences.

    Args:
        low, high: bootstrap interval of 95 %; None for a single pair.
        p: of the paired t-test that the mean is zero; None where it is undefined.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    pairs: int

    def __str__(self) -> str:
        return self.text("+.2f")

    def text(self, form: str) -> str:
        """Mean and interval, e.g. `+1.50 [+1.20, +1.80]`."""
        ends = [format(end, form) for end in (self.low, self.high) if end is not None]
        return f"{self.mean:{form}}" + (f" [{', '.join(ends)}]" if ends else "")


def paired_difference(
    ours: Mapping[Key, float | None], theirs: Mapping[Key, float | None]
) -> Difference | None:
    """Ours minus theirs over the keys that have both values; None without any."""
    pairs = ((value, theirs.get(key)) for key, value in ours.items())
    return difference_of([a - b for a, b in pairs if a is not None and b is not None])


def difference_of(differences: Sequence[float]) -> Difference | None:
    """Mean of paired differences, and its interval.

    With two or three pairs the interval is their range: a bootstrap cannot exceed it.
    """
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
