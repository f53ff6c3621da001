"""Derives expected times from other timings, and defines further requirements on a timing."""

from __future__ import annotations

from collections.abc import Callable

from suite.doctor.timer_proof.checks import Timings, UnknownError
from suite.timing import Timing, union_ns


def recorded(name: str, timings: Timings) -> float:
    """The device time in us of the call `name`. Raises `UnknownError` if it was not recorded."""
    timing = timings.get(name)
    if timing is None or timing.device_us is None:
        raise UnknownError(f"{name} was not recorded")
    return timing.device_us


def times(factor: float, name: str) -> Callable[[Timings], float]:
    """`factor` times the device time of another call."""
    return lambda timings: factor * recorded(name, timings)


def total(*names: str) -> Callable[[Timings], float]:
    """The sum of the device times of other calls."""
    return lambda timings: sum(recorded(name, timings) for name in names)


def cycles(count: int, name: str, after: str = "") -> Callable[[Timings], float | None]:
    """`count` clock cycles at the SM clock during the call `name`, plus the device time of the call `after`."""

    def expect(timings: Timings) -> float | None:
        recorded(name, timings)
        clock = timings[name].clock_sm_mhz
        return None if not clock else count / clock + (recorded(after, timings) if after else 0.0)

    return expect


def host_clock(name: str) -> Callable[[Timings], float | None]:
    """The latency of the same call on the host's clock."""
    return lambda timings: timings[name].latency_us


def requires_idle(us: float) -> Callable[[Timing], str]:
    """A requirement: gaps between the activities of at least `us` in total."""

    def complaint(timing: Timing) -> str:
        span, busy = _span_and_busy(timing)
        return "" if span - busy >= us else f"the device was idle for {span - busy:.0f} us only"

    return complaint


def requires_overlap(us: float) -> Callable[[Timing], str]:
    """A requirement: activities overlap for at least `us`."""

    def complaint(timing: Timing) -> str:
        both = sum(a.end - a.start for a in timing.activities) / 1000 - _span_and_busy(timing)[1]
        return "" if both >= us else f"the kernels overlapped for {both:.0f} us only"

    return complaint


def _span_and_busy(timing: Timing) -> tuple[float, float]:
    """The time from first start to last end of the last sample, and its busy time, in us."""
    if not timing.activities:
        return 0.0, 0.0
    intervals = [(activity.start, activity.end) for activity in timing.activities]
    span = max(end for _, end in intervals) - min(start for start, _ in intervals)
    return span / 1000, union_ns(intervals) / 1000
