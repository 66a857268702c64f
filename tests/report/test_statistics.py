"""Paired differences, against values worked out by hand."""

import math

import pytest

from hashprompt.report.statistics import Difference, paired_difference


def of(ours: list[float | None], theirs: list[float]) -> Difference | None:
    return paired_difference(dict(enumerate(ours)), dict(enumerate(theirs)))


@pytest.mark.parametrize(
    ("ours", "theirs", "mean", "interval", "text"),
    [
        ([70.0], [68.5], 1.5, (None, None), "+1.50"),
        ([3.0, 5.0], [1.0, 3.0], 2.0, (2.0, 2.0), "+2.00 [+2.00, +2.00]"),
        # Of four equally likely draws one is all low and one all high: a quarter each.
        ([70.0, 72.0], [69.0, 68.0], 2.5, (1.0, 4.0), "+2.50 [+1.00, +4.00]"),
        ([70.0, None, 1.0], [68.5, 60.0], 1.5, (None, None), "+1.50"),  # only one pair
    ],
)
def test_mean_and_interval(
    ours: list[float | None], theirs: list[float], mean: float, interval: tuple, text: str
) -> None:
    found = of(ours, theirs)
    assert found is not None
    assert (found.mean, (found.low, found.high), str(found)) == (mean, interval, text)


def test_nothing_to_compare() -> None:
    assert of([], []) is None
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_the_t_test_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t = 2·√3, two degrees of freedom."""
    found = of([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    assert found is not None
    t = 2 * math.sqrt(3)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))  # P(|T| > t) for two degrees
    assert found.pairs == 3


def test_other_pairs_of_the_same_values_are_less_certain() -> None:
    low, high = [60.0, 70.0, 80.0, 90.0], [61.0, 71.5, 81.0, 91.5]
    paired, crossed = of(high, low), of(high[::-1], low)
    assert paired is not None
    assert crossed is not None
    assert paired.mean == crossed.mean
    assert paired.low is not None
    assert crossed.low is not None
    assert crossed.low < 0 < paired.low
