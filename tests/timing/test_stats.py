"""Medians, their confidence intervals, the stopping rule's schedule and paired ratios."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.timing import (
    median,
    median_interval,
    paired_ratio,
)
from suite.timing.stats import MIN_FOR_INTERVAL, half_width, interval_rank, next_evaluation, noise

floats = st.floats(1e-3, 1e6, allow_nan=False)


@given(st.lists(floats, min_size=1, max_size=30))
def test_median_equals_the_standard_librarys(values: list[float]) -> None:
    assert median(values) == pytest.approx(statistics.median(values))


def test_an_interval_needs_six_samples() -> None:
    assert [median_interval([1.0] * n) for n in range(1, 6)] == [None] * 5
    assert median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 6.0)
    assert MIN_FOR_INTERVAL == 6


@pytest.mark.parametrize(("n", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (50, 18), (100, 40)])
def test_interval_ranks_are_the_published_ones(n: int, rank: int) -> None:
    """Sign test tables, two-sided 5% (e.g. Conover, Practical Nonparametric Statistics)."""
    assert interval_rank(n) == rank


@pytest.mark.parametrize("n", [*range(6, 40), 101, 1000, 5000])
def test_interval_covers_and_is_the_narrowest(n: int) -> None:
    k = interval_rank(n)

    def misses(rank: int) -> float:
        logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) - n * math.log(2) for i in range(rank)]
        return 2 * math.fsum(math.exp(value) for value in logs)

    assert misses(k) <= 0.05 < misses(k + 1)


def test_interval_covers_in_practice() -> None:
    """For skewed samples, as times are, the interval contains the true median at least 95 times in 100."""
    rng = random.Random(1)
    true, held = math.exp(0.0), 0
    for _ in range(2000):
        low, high = median_interval([rng.lognormvariate(0.0, 1.0) for _ in range(15)]) or (0, 0)
        held += low <= true <= high
    assert held / 2000 > 0.94


@given(st.lists(floats, min_size=6, max_size=40), st.randoms())
def test_interval_brackets_the_median_in_any_order(values: list[float], rng: random.Random) -> None:
    low, high = median_interval(values) or (math.inf, -math.inf)
    assert min(values) <= low <= median(values) <= high <= max(values)
    assert median_interval(rng.sample(values, len(values))) == (low, high)


def test_half_width_is_the_longer_arm() -> None:
    assert half_width([100.0] * 5) == math.inf
    assert half_width([100.0] * 6) == 0.0
    assert half_width([99.0, 100.0, 100.0, 100.0, 100.0, 104.0]) == pytest.approx(0.04)


def test_noise_is_half_the_width_as_in_tables() -> None:
    assert noise([]) == noise([100.0] * 5) == math.inf
    assert noise([99.0, 100.0, 100.0, 100.0, 100.0, 104.0]) == pytest.approx(0.025)


def test_evaluations_of_the_stopping_rule_are_few_and_never_end() -> None:
    looks = list(itertools.accumulate(range(100), lambda n, _: next_evaluation(n), initial=6))
    assert looks == sorted(set(looks))
    assert looks[1] == 7
    assert sum(look <= 1000 for look in looks) < 60


def test_ratio_pairs_within_rounds() -> None:
    """The device slows down by half between rounds, which does not change the ratio."""
    drift = [1.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
    ratio, low, high = paired_ratio([20.0 * d for d in drift], [10.0 * d for d in drift])
    assert (ratio, low, high) == pytest.approx((2.0, 2.0, 2.0))


def test_ratio_of_few_rounds_has_no_interval() -> None:
    assert paired_ratio([2.0, 2.0, 2.0], [1.0] * 9) == (2.0, None, None)
