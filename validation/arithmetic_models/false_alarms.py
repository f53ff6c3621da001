"""Bounds the probability that a right result exceeds its bound."""

from __future__ import annotations

import math

import numpy as np

from suite.numerics.bounds import MARGIN, deviations
from suite.results.render import pipe_table


def exceeded(deviation: float, total: float) -> float:
    """Bound the probability that the rounding errors of the partial sums of n terms add up to `deviation`.

    `deviation` is in units of u sqrt(n / 3) spread, `total`, the sum, in units of spread. From Markov's inequality and
    the moments of the integral of the square of a Brownian motion W that ends at W(1) = total (R. H. Cameron and W. T.
    Martin, 1945): E exp(x^2 / 2 integral W^2) = sqrt(x / sin x) exp(total^2 / 2 (1 - x cot x)) for 0 < x < pi.
    """
    x = np.linspace(0.01, 3.14, 4000)
    exponent = -x * deviation + np.log(x / np.sin(x)) / 2 + total**2 / 2 * (1 - x / np.tan(x))
    return float(2 * np.exp(exponent.min()))


def refused(count: int, total: float, rounding: float = 1.0) -> float:
    """Bound the probability that one of `count` right sums, added one by one in float32, is refused.

    `rounding` is the variance of a rounding of s in units of u^2 s^2 / 3. 1 is its largest value; for significands with
    logarithmic distribution the mean of (2^exponent / s)^2 is 3 / (8 log 2) = 0.54.
    """
    deviation = MARGIN * deviations(count) * math.sqrt(1 + total**2 / 3)
    return count * exceeded(deviation / math.sqrt(rounding), total)


def false_alarms() -> str:
    """Format the probability of a false alarm by number of outputs as a Markdown table."""
    totals = np.linspace(0, 10, 101)
    body = []
    for count in (1, 10**4, 2**20, 2**24, 2**31):
        allowed = deviations(count)
        normal = 2 * count * math.exp(-((MARGIN * allowed) ** 2) / 2)
        worst, mean = (max(refused(count, t, kind) for t in totals) for kind in (1.0, 3 / (8 * math.log(2))))
        body.append([f"{count}", f"{allowed:.1f}", f"{normal:.0e}", f"{worst:.0e}", f"{mean:.0e}"])
    heads = ["outputs", "deviations", "refused: normal tail", "one by one, worst", "one by one, mean"]
    return pipe_table(heads, body, right=set(heads))
