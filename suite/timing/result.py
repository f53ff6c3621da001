"""Computes the `Timing` of each call from the raw samples of a case."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suite import hardware
from suite.hardware.occupancy import Limits
from suite.timing.intervals import Activity
from suite.timing.kernels_run import kernel_details, kernels_run, longest_occupancy
from suite.timing.stats import median, median_interval, noise, paired_ratio

MIN_SAMPLES = 10
"""The smallest number of samples of a call."""
SLOW_NS, MIN_SLOW = 2_000_000_000, 3
"""A call slower than SLOW_NS takes three samples, too few for an interval: ten would take more than 20 s."""
LONG_NS = 30_000_000
"""On a GPU the samples of a call that takes longer differ little. It has fewer than MIN_SAMPLES if their interval is
narrow enough, two calls of warm-up if these agree, and one for its latency. Naive kernels would otherwise take most of
the time of a case."""
SHOWN_ACTIVITIES = 32
"""The largest number of activities of the last sample that a `Timing` keeps."""


@dataclass(frozen=True)
class Timing:
    """The measured numbers of one call. A number that was not measured is None."""

    recorder: str
    recorder_reason: str
    """The reason why the recorder is not `cupti`, or a remark on its accuracy; else empty."""
    cache: str
    threads: int | None = None
    """Threads of the implementation on a CPU; None on a GPU, or if the framework began with a number of its own."""
    samples: int = 0
    stopped_by: str = ""
    """`interval`: the median's interval is as narrow as requested. `budget`: the call's time budget ended first."""
    device_us: float | None = None
    device_us_low: float | None = None
    device_us_high: float | None = None
    sample_us: tuple[float, ...] = field(default=(), repr=False)
    """Every sample, in the order in which they were taken."""
    latency_us: float | None = None
    dispatch_us: float | None = None
    graph_us: float | None = None
    kernels: float | None = None
    """Activities (kernels, copies, fills) of one call, on average."""
    kernels_run: str = ""
    """The activities of the last sample, as `kernels_run.py` writes them."""
    kernel_details: str = ""
    occupancy: float | None = None
    """Theoretical occupancy of the longest kernel of the last sample."""
    vs_best: float | None = None
    vs_best_low: float | None = None
    vs_best_high: float | None = None
    clock_sm_mhz: float | None = None
    """Median of the readings during the case. Temperature and power are maxima."""
    clock_of_max: float | None = None
    """The median SM clock divided by the highest SM clock of the device."""
    temperature_c: float | None = None
    power_w: float | None = None
    clock_reasons: str = ""
    clocks_lowered: bool = False
    """True if one of `hardware.SLOWDOWNS` was active during the case."""
    flags: tuple[str, ...] = ()
    """Warnings on the numbers, for people."""
    error: str = ""
    """The reason why device_us is missing although the recorder ran."""
    activities: tuple[Activity, ...] = ()
    """The first activities of the last sample."""


@dataclass
class CallRecord:
    """The raw numbers of one call during the measurement."""

    cost_ns: float = math.inf
    """Shortest wall time of a warm call."""
    latency_us: float | None = None
    dispatch_us: float | None = None
    graph_us: float | None = None
    device_us: list[float] = field(default_factory=list)
    issue_us: list[float] = field(default_factory=list)
    """Time until the call returned, for each sample. Recorded only if the calling thread is the device."""
    spent_ns: int = 0
    """Time spent on its samples and their preparation."""
    evaluate_at: int = MIN_SAMPLES
    """Number of samples at which the stopping rule is evaluated next."""
    stopped_by: str = ""
    """The reason why it takes no more samples; empty while it does."""
    counts: list[int] = field(default_factory=list)
    """Number of activities of each sample."""
    activities: Sequence[Activity] = ()
    """The activities of the last sample."""
    error: str = ""

    @property
    def slow(self) -> bool:
        return self.cost_ns > SLOW_NS

    @property
    def long(self) -> bool:
        return self.cost_ns > LONG_NS

    @property
    def minimum(self) -> int:
        return MIN_SLOW if self.slow else MIN_SAMPLES

    @property
    def usable(self) -> bool:
        return bool(self.device_us) and not self.error

    @property
    def finished(self) -> bool:
        return bool(self.stopped_by or self.error)

    def clear(self) -> None:
        """Remove the samples, but keep the cost and host times of the call."""
        self.device_us, self.issue_us, self.counts, self.spent_ns = [], [], [], 0


def best_vendor(records: Mapping[str, CallRecord], vendors: Sequence[str], limit: float = math.inf) -> str | None:
    """The name of the vendor call with the smallest median, or None.

    A call whose interval is wider than `limit` counts only if its interval lies below that of every quiet one, or if
    none is quiet, because a noisy median is no reference.
    """
    times = {name: records[name].device_us for name in vendors if records[name].usable}
    quiet = [name for name in times if noise(times[name]) <= limit]
    fastest = min(times, key=lambda name: median(times[name]), default=None)
    if fastest is None or fastest in quiet or not quiet:
        return fastest
    best = min(quiet, key=lambda name: median(times[name]))
    ours, theirs = median_interval(times[fastest]), median_interval(times[best])
    return fastest if ours is not None and theirs is not None and ours[1] < theirs[0] else best


def timing(
    record: CallRecord,
    best: CallRecord | None,
    states: Sequence[hardware.State],
    shared: Mapping[str, Any],
    limits: Limits | None = None,
) -> Timing:
    """The `Timing` of one call.

    `best` is the fastest vendor call. `shared` has the fields that are equal for all calls. `limits` are those of the
    device's multiprocessors.
    """
    common: dict[str, Any] = {
        **shared,
        **summary(states),
        "latency_us": record.latency_us,
        "dispatch_us": record.dispatch_us,
        "graph_us": record.graph_us,
        "stopped_by": record.stopped_by,
    }
    flags = list(warnings(states))
    if not record.usable:
        return Timing(**common, flags=tuple(flags), error=record.error)
    low, high = median_interval(record.device_us) or (None, None)
    if low is None:
        flags.append(f"{len(record.device_us)} samples are too few for a 95% interval")
    if record.counts and min(record.counts) != max(record.counts):
        flags.append(f"activities of one call vary from {min(record.counts)} to {max(record.counts)}")
    ratio, ratio_low, ratio_high = _ratio(record, best)
    activities = tuple(record.activities)
    return Timing(
        **common,
        samples=len(record.device_us),
        device_us=median(record.device_us),
        device_us_low=low,
        device_us_high=high,
        sample_us=tuple(record.device_us),
        kernels=sum(record.counts) / len(record.counts) if record.counts else None,
        vs_best=ratio,
        vs_best_low=ratio_low,
        vs_best_high=ratio_high,
        flags=tuple(flags),
        kernels_run=kernels_run(activities[:SHOWN_ACTIVITIES]),
        kernel_details=kernel_details(activities[:SHOWN_ACTIVITIES]),
        occupancy=longest_occupancy(activities, limits),
        activities=activities[:SHOWN_ACTIVITIES],
    )


def _ratio(record: CallRecord, best: CallRecord | None) -> tuple[float | None, float | None, float | None]:
    if best is None:
        return None, None, None
    if best is record:
        return 1.0, 1.0, 1.0
    return paired_ratio(best.device_us, record.device_us)


def summary(states: Sequence[hardware.State]) -> dict[str, Any]:
    """The fields of `Timing` that summarize the readings of a case."""

    def known(attribute: str) -> list[float]:
        return [value for state in states if (value := getattr(state, attribute)) is not None]

    clocks, highest = known("clock_sm_mhz"), max(known("clock_sm_max_mhz"), default=None)
    return {
        "clock_sm_mhz": median(clocks) if clocks else None,
        "clock_of_max": median(clocks) / highest if clocks and highest else None,
        "temperature_c": max(known("temperature_c"), default=None),
        "power_w": max(known("power_w"), default=None),
        # A reading between two calls finds the device idle.
        "clock_reasons": ", ".join(hardware.clock_reasons(_reasons(states) & ~hardware.IDLE)),
        "clocks_lowered": bool(_reasons(states) & hardware.SLOWDOWNS),
    }


def warnings(states: Sequence[hardware.State]) -> Iterator[str]:
    """Warnings for readings that make the numbers of a case doubtful."""
    for word in hardware.clock_reasons(_reasons(states) & hardware.SLOWDOWNS):
        yield f"clocks were lowered: {word}"
    others = max((state.other_processes for state in states), default=0)
    if others:
        yield f"{others} other process{'es' if others > 1 else ''} on the device"


def _reasons(states: Sequence[hardware.State]) -> int:
    bits = 0
    for state in states:
        bits |= state.clock_reasons
    return bits
