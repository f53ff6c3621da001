"""Three times the same call: the order is drawn anew in each round, so that no call gains by its position."""

from __future__ import annotations

import itertools
from collections import Counter
from statistics import fmean

from fakes.target import FakeTarget

from suite.timing.sampling import Measurement

NAMES = ("a", "b", "c")


def test_no_line_gains_by_its_position_in_the_rounds() -> None:
    """The first call of a round takes 100 us, the second 110, the third 120: as where a device warms up."""
    target, issued = FakeTarget(), []

    def us(name: str) -> float:
        position = len(issued) % 3
        if target.live:
            issued.append(name)
        return 100.0 + 10.0 * position

    calls = [target.call(name, lambda name=name: us(name)) for name in NAMES]
    timings = Measurement(calls, target).measure(0.2, 0.0, 1.0)
    means = [fmean(timings[name].sample_us) for name in NAMES]
    assert max(means) / min(means) < 1.03, means
    rounds = [tuple(issued[i : i + 3]) for i in range(3, len(issued) - 2, 3)]  # the first are trial samples
    assert all(sorted(each) == list(NAMES) for each in rounds)
    orders = Counter(rounds)
    assert len(rounds) >= 300
    assert set(orders) == set(itertools.permutations(NAMES))
    assert max(orders.values()) < 1.8 * len(rounds) / 6, orders


def test_two_measurements_have_other_orders() -> None:
    def order() -> list[str]:
        target, issued = FakeTarget(), []
        calls = [target.call(name, lambda name=name: (issued.append(name), 100.0)[1]) for name in NAMES]
        Measurement(calls, target).measure(0.05, 0.0, 1.0)
        return issued

    assert order() != order()
