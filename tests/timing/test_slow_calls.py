"""Slow and long calls: how often they are called, and what they cost the others."""

from __future__ import annotations

import random

import pytest
from fakes.target import FakeTarget

from suite.timing.result import MIN_SAMPLES
from tests.timing.measured import run


def test_a_slow_call_is_not_repeated_dozens_of_times() -> None:
    target, count = FakeTarget(), []
    slow = target.call("slow", lambda: (count.append(1), 3e6)[1])
    timings = run(target, slow, target.call("fast", 100.0, vendor=True), budget_s=0.0)
    assert timings["slow"].samples == 3
    assert timings["fast"].samples == MIN_SAMPLES
    assert len(count) <= 7
    assert timings["slow"].device_us == 3e6
    assert (timings["slow"].device_us_low, timings["slow"].vs_best_low) == (None, None)
    assert timings["slow"].vs_best == pytest.approx(100 / 3e6)
    assert "3 samples are too few" in timings["slow"].flags[0]


@pytest.mark.parametrize(("jitter", "samples", "stopped_by"), [(0.001, 6, "interval"), (0.1, MIN_SAMPLES, "budget")])
def test_a_long_call_stops_as_soon_as_its_interval_is_narrow(jitter: float, samples: int, stopped_by: str) -> None:
    target, chance, count = FakeTarget(), random.Random(2), []
    naive = target.call("naive", lambda: (count.append(1), 50_000.0 * chance.uniform(1 - jitter, 1 + jitter))[1])
    timings = run(target, naive, target.call("vendor", 100.0, vendor=True), budget_s=0.04)
    assert (timings["naive"].samples, timings["naive"].stopped_by) == (samples, stopped_by)
    assert timings["naive"].device_us_low < timings["naive"].device_us < timings["naive"].device_us_high
    if jitter < 0.1:
        assert len(count) == 2 + 1 + 1 + samples, "warm-up, latency, the trial sample"


def test_a_slow_call_takes_no_samples_from_the_others() -> None:
    """A call of 50 ms beside one of 0.1 ms, with 40 ms for each: ten samples of one, hundreds of the other."""
    target, jitter = FakeTarget(), random.Random(2)
    timings = run(
        target,
        target.call("naive", lambda: 50_000.0 * jitter.uniform(0.9, 1.1)),
        target.call("vendor", lambda: 100.0 * jitter.uniform(0.9, 1.1), vendor=True),
        budget_s=0.04,
    )
    assert (timings["naive"].samples, timings["naive"].stopped_by) == (MIN_SAMPLES, "budget")
    assert timings["vendor"].samples > 100
    assert timings["naive"].vs_best == pytest.approx(0.002, rel=0.1)
    assert timings["naive"].vs_best_low < timings["naive"].vs_best < timings["naive"].vs_best_high
