"""The arithmetic of intervals. The interval of a ratio contains the true ratio."""

from __future__ import annotations

import math
import random

import pytest

from suite.diff.interval import Estimate
from suite.timing.stats import median, median_interval


def test_arms_add_as_squares_and_stay_on_their_sides() -> None:
    base = Estimate(math.log(2.0), down=0.03, up=0.3)
    new = Estimate(math.log(1.0), down=0.4, up=0.04)
    ratio = new - base
    assert (ratio.value, ratio.down, ratio.up) == pytest.approx((math.log(0.5), 0.5, 0.05))
    assert (base - new).low == pytest.approx(-ratio.high)
    assert (base - new).high == pytest.approx(-ratio.low)


@pytest.mark.parametrize("tails", ["normal", "skewed", "heavy"])
@pytest.mark.parametrize(("few", "many"), [(6, 6), (6, 40), (20, 20)])
def test_the_interval_of_a_ratio_holds_the_truth(tails: str, few: int, many: int) -> None:
    """Times are drawn from one distribution twice, so the true ratio is 1. At least 97.5% of the intervals contain it;
    0.95 is 4 sigma away."""
    chance = random.Random(f"{tails} {few} {many}")

    def noise() -> float:
        if tails == "normal":
            return chance.gauss(0, 1)
        return chance.expovariate(1) if tails == "skewed" else chance.gauss(0, 1) / max(1e-3, chance.random())

    def estimate(count: int) -> Estimate:
        times = [100 * math.exp(0.01 * noise()) for _ in range(count)]
        low, high = median_interval(times) or (None, None)
        return -Estimate.from_interval(median(times), low, high)

    ratios = [estimate(few) - estimate(many) for _ in range(600)]
    assert sum(ratio.low <= 0 <= ratio.high for ratio in ratios) >= 0.95 * len(ratios)
