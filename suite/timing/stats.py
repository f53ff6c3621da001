"""Computes medians and their confidence intervals from order statistics, for samples of any distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

MIN_FOR_INTERVAL = 6
"""The smallest number of samples that gives a 95% interval: six give 1 - 2 / 2**6 = 96.9%, five only 93.8%."""


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle values. Raises `ValueError` if there are no values."""
    if not values:
        raise ValueError("median of no samples")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@lru_cache(maxsize=4096)
def interval_rank(n: int) -> int:
    """Largest k such that [k-th smallest, k-th largest] of n samples covers the median with 95% confidence; 0 if none.

    The number of samples below the true median is B ~ Binomial(n, 1/2). The interval misses the median if fewer than k
    samples lie on either side, with probability 2 P(B < k), which must be at most 0.05. Exact: computed in integers.
    """
    k, term, tail = 0, 1, 0
    while True:
        tail += term
        if 2 * tail * 20 > 2**n:
            return k
        k += 1
        term = term * (n - k + 1) // k


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95% confidence interval of the median; None if there are too few samples."""
    k = interval_rank(len(values))
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


def half_width(values: Sequence[float]) -> float:
    """The longer arm of the median's 95% interval, relative to the median; infinity if there is no interval."""
    bounds = median_interval(values)
    if bounds is None:
        return math.inf
    middle = median(values)
    arm = max(bounds[1] - middle, middle - bounds[0])
    return arm / middle if middle > 0 else (0.0 if arm == 0 else math.inf)


def noise(values: Sequence[float]) -> float:
    """Half the width of the median's 95% interval, relative to the median; infinity if there is no interval."""
    bounds = median_interval(values)
    middle = median(values) if values else 0.0
    return math.inf if bounds is None or middle <= 0 else (bounds[1] - bounds[0]) / 2 / middle


def next_evaluation(n: int) -> int:
    """The number of samples at which the stopping rule is evaluated next: a tenth more than `n`.

    Every evaluation may stop on an interval that is narrow by chance, so evaluations are few.
    """
    return max(n + 1, math.ceil(1.1 * n))


def paired_ratio(reference: Sequence[float], ours: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Median of reference / ours over their common rounds, with its 95% interval (None if there are too few rounds).

    Samples pair by position. A call that ended early has samples of the first rounds only; only those are used.
    """
    ratios = [r / o for r, o in zip(reference, ours, strict=False)]
    low, high = median_interval(ratios) or (None, None)
    return median(ratios), low, high
