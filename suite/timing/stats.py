"""Medians and their intervals, without an assumption on how the samples are distributed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

MIN_FOR_INTERVAL = 6
"""Fewest samples whose extremes enclose the median with 95% confidence: 1 - 2 / 2**6 = 96.9%; five give 93.8%."""


def median(values: Sequence[float]) -> float:
    """Middle value; the mean of the middle two if there is an even number."""
    if not values:
        raise ValueError("median of no samples")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@lru_cache(maxsize=4096)
def interval_rank(n: int) -> int:
    """Largest k for which [k-th smallest, k-th largest] of n samples holds the median with 95% confidence; 0 if none.

    Each sample falls below the true median with probability 1/2, so the number below is Binomial(n, 1/2), and the
    interval misses if fewer than k fall on either side: 2 P(B < k) <= 0.05. In integers, hence exact for every n.
    """
    k, term, tail = 0, 1, 0
    while True:
        tail += term
        if 2 * tail * 20 > 2**n:
            return k
        k += 1
        term = term * (n - k + 1) // k


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95% confidence interval of the median, from order statistics; None if there are too few samples for one."""
    k = interval_rank(len(values))
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


def half_width(values: Sequence[float]) -> float:
    """The larger arm of the median's interval, relative to the median; infinity where there is no interval."""
    bounds = median_interval(values)
    if bounds is None:
        return math.inf
    middle = median(values)
    arm = max(bounds[1] - middle, middle - bounds[0])
    return arm / middle if middle > 0 else (0.0 if arm == 0 else math.inf)


def next_look(n: int) -> int:
    """How many samples to have before the stopping rule is asked again: a tenth more.

    Each look is a chance to stop on a run of luck; looking rarely keeps that chance, and its cost, small.
    """
    return max(n + 1, math.ceil(1.1 * n))


def paired_ratio(reference: Sequence[float], ours: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Median of reference/ours over the rounds both took part in, with its 95% interval.

    Samples pair by position: a call that leaves early has samples of the first rounds only, and just those are used.
    """
    ratios = [r / o for r, o in zip(reference, ours, strict=False)]
    low, high = median_interval(ratios) or (None, None)
    return median(ratios), low, high
