"""Paired differences, against values worked out by hand."""

import math

import pytest

from hashprompt.report.statistics import paired_difference


def test_nothing_to_compare() -> None:
    assert paired_difference([], []) is None


def test_one_pair_has_no_interval() -> None:
    found = paired_difference([70.0], [68.5])
    assert found is not None
    assert (found.mean, found.low, found.high, found.p, found.pairs) == (1.5, None, None, None, 1)
    assert str(found) == "+1.50"


def test_equal_differences_have_an_interval_of_no_width() -> None:
    found = paired_difference([3.0, 5.0], [1.0, 3.0])
    assert found is not None
    assert (found.mean, found.low, found.high, found.p) == (2.0, 2.0, 2.0, None)


def test_of_two_pairs_the_interval_is_their_range() -> None:
    """Of four equally likely draws one is all low and one all high: a quarter each."""
    found = paired_difference([70.0, 72.0], [69.0, 68.0])
    assert found is not None
    assert (found.low, found.high) == (1.0, 4.0)
    assert str(found) == "+2.50 [+1.00, +4.00]"


def test_the_t_test_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t = 2·√3, two degrees of freedom."""
    found = paired_difference([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    assert found is not None
    t = 2 * math.sqrt(3)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))  # P(|T| > t) for two degrees
    assert found.pairs == 3


def test_pairs_are_what_counts() -> None:
    """The same values, paired otherwise, are far less certain."""
    low, high = [60.0, 70.0, 80.0, 90.0], [61.0, 71.5, 81.0, 91.5]
    paired, crossed = paired_difference(high, low), paired_difference(high[::-1], low)
    assert paired is not None
    assert crossed is not None
    assert paired.mean == crossed.mean
    assert paired.low is not None
    assert paired.low > 0
    assert crossed.low is not None
    assert crossed.low < 0


def test_different_lengths_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_difference([1.0], [1.0, 2.0])
