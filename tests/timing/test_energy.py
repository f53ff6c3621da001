"""Energy of a call from a counter that is updated now and then."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from fakes.target import FakeTarget

from suite.timing import (
    Call,
)
from suite.timing.energy import joules_per_call
from suite.timing.sampling import Measurement


def run(target: FakeTarget, *calls: Call, cache: str = "cold", budget_s: float = 1.0, interval: float = 0.005, **more):
    energy = more.pop("energy", False)
    return Measurement(calls, target, cache, **more).measure(budget_s, interval, energy)


def test_energy_is_that_of_the_counter() -> None:
    target = FakeTarget()
    timings = run(target, target.call("a", 1000.0, issue_us=0.0), energy=True)
    assert timings["a"].joules == pytest.approx(0.5, rel=0.05)  # 500 W for 1 ms
    assert run(target, target.call("a", 10.0))["a"].joules is None


def test_a_call_shorter_than_its_launch_has_no_energy() -> None:
    """The device would mostly wait between such calls."""
    target = FakeTarget()
    timings = run(target, target.call("short", 4.0, issue_us=5.0), target.call("long", 50.0, issue_us=5.0), energy=True)
    assert timings["short"].joules is None
    assert timings["short"].device_us
    assert timings["long"].joules is not None


def test_a_call_that_is_slow_beside_the_fastest_one_has_no_energy() -> None:
    target = FakeTarget()
    calls = [target.call(name, us, issue_us=0.0) for name, us in (("fast", 1000.0), ("near", 1400.0), ("slow", 1700.0))]
    timings = run(target, *calls, energy=True)
    assert {name for name, timing in timings.items() if timing.joules is not None} == {"fast", "near"}


@pytest.mark.parametrize("counter", [True, False], ids=["counter", "no counter"])
def test_warm_up_is_short_only_if_the_energy_measurement_follows(counter: bool) -> None:
    class Target(FakeTarget):
        def energy_mj(self) -> int | None:  # type: ignore[override]
            return super().energy_mj() if counter else None

    def recorded_from(energy: bool) -> int:
        target = Target()
        live: list[bool] = []
        call = target.call("a", lambda: live.append(target.live) or 1000.0, issue_us=0.0)  # type: ignore[func-returns-value]
        run(target, call, energy=energy)
        return live.index(True)

    assert (recorded_from(True) > recorded_from(False)) == counter
    assert recorded_from(True) >= 30  # 20 ms, and the latency's 10 calls


def test_energy_without_an_update_of_the_counter_is_unknown() -> None:
    clock = itertools.count(0, 50_000_000)
    assert joules_per_call([(no_calls, 1e6)] * 2, lambda: 5, lambda: next(clock)) == [None, None]
    assert joules_per_call([(no_calls, 1e6)], lambda: None, lambda: next(clock)) == [None]


def no_calls(count: int) -> Callable[[], None]:
    return lambda: None


def test_each_update_ends_one_window_and_begins_the_next() -> None:
    """The counter is updated every 100 ms; between updates it is out of date."""
    now, millijoules, shown, updated = [0], [0.0], [0], [0]

    def load(watts: float, call_ns: int) -> Callable[[int], Callable[[], None]]:
        def start(count: int) -> Callable[[], None]:
            def finish() -> None:
                for _ in range(count * call_ns // 1_000_000):
                    now[0] += 1_000_000
                    millijoules[0] += watts
                    if now[0] - updated[0] >= 100_000_000:
                        shown[0], updated[0] = int(millijoules[0]), now[0]

            return finish

        return start

    watts = (700.0, 200.0, 500.0, 300.0)
    calls_ns = (1_000_000, 1_000_000, 60_000_000, 1_000_000)
    loads = [(load(*each), float(each[1])) for each in zip(watts, calls_ns, strict=True)]
    begin = now[0]
    joules = joules_per_call(loads, lambda: shown[0], lambda: now[0])
    expected = [w * ns / 1e9 for w, ns in zip(watts, calls_ns, strict=True)]
    assert joules[0] == pytest.approx(expected[0], rel=0.08)
    assert joules[1] == pytest.approx(expected[1], rel=0.15), "the window includes a batch of the load before, at 700 W"
    assert joules[2] == pytest.approx(expected[2], rel=0.4), "the window of a slow call is known to within one call"
    assert joules[3] == pytest.approx(expected[3], rel=0.05), "the next load waits for an update of its own"
    assert now[0] - begin < 1_000_000_000
