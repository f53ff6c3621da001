"""Computes the busy time of the device's activities and assigns them to the spans of samples. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from suite.core.errors import SuiteError


class RecorderError(SuiteError):
    """The activity records are incomplete or contradict each other, so no time can be computed from them."""


class NoRecorderError(SuiteError):
    """The recorder is not available in this process. The message says why and what to do."""


class Launch(NamedTuple):
    """The launch configuration of a kernel."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    """Registers per thread."""
    shared_bytes: int
    """Shared memory per block, static and dynamic."""

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads per block."""
        return math.prod(self.block)


class Activity(NamedTuple):
    """One kernel, copy or fill on the device. Times are in nanoseconds of the recorder's clock."""

    name: str
    start: int
    end: int
    kind: str
    """`kernel`, `memcpy` or `memset`."""
    in_graph: bool = False
    """True if a CUDA graph launched it."""
    launch: Launch | None = None
    """The launch configuration of a kernel; None if it is unknown."""


MAX_OFFSET_NS = 5_000
"""Largest offset between converted device times and the recorder's clock that is corrected. Measured on H200s: about
3 us, of either sign, different in each process."""
MARGIN_NS = 500
"""The shortest time between an activity and the edges of its span after the correction of the offset."""


def covered_ns(starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
    """The length that each interval adds to the union of the earlier ones, in ns. `starts` is sorted."""
    reach = np.maximum.accumulate(np.concatenate([starts[:1], ends[:-1]]))
    added: NDArray[Any] = np.maximum(ends - np.maximum(starts, reach), 0)
    return added


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Busy time: the length in ns of the union of (start, end) intervals.

    The span from first start to last end would include gaps, which tracing itself widens; the sum of the lengths would
    count overlapping activities twice.
    """
    starts, ends = np.array(sorted(intervals), np.int64).reshape(-1, 2).T
    return int(covered_ns(starts, ends).sum())


def are_serial(activities: Sequence[Activity]) -> bool:
    """True if no two activities overlap and none was launched by a CUDA graph."""
    ordered = sorted((activity.start, activity.end) for activity in activities)
    apart = all(later[0] >= before[1] for before, later in pairwise(ordered))
    return apart and not any(activity.in_graph for activity in activities)


def clock_offset(
    starts: NDArray[Any],
    ends: NDArray[Any],
    edges: NDArray[Any],
    guess: int = 0,
    is_call: NDArray[np.bool_] | None = None,
) -> int:
    """The offset in ns to add to device times so that every activity lies in its span and every call has one.

    `edges` are times at which the host found the device idle. `is_call` tells which of the spans between them are
    calls; by default every second one is, after a preparation.
    If the offset is larger than the launch latency (2 us) or than the time until the host sees completion, activities
    appear to run before they are launched or after they are waited for. Returns `guess` if it leaves every activity
    `MARGIN_NS`; else the nearest offset that does; else the best one.
    """
    calls = np.arange(max(len(edges) - 1, 0)) % 2 == 1 if is_call is None else is_call

    def fit(shift: int) -> tuple[bool, int, int]:
        """The quality of an offset: all margins are kept; number of calls with an activity; smallest margin in ns."""
        begin = starts + shift
        found = np.searchsorted(edges, begin, side="right") - 1
        if not ((found >= 0) & (found < len(edges) - 1)).all():
            return False, 0, -MAX_OFFSET_NS
        margin = int(np.minimum(begin - edges[found], edges[found + 1] - ends - shift).min(initial=MARGIN_NS))
        seen = int(np.count_nonzero(np.bincount(found, minlength=len(calls))[: len(calls)][calls]))
        return margin == MARGIN_NS, seen, margin

    if fit(guess) == (True, int(np.count_nonzero(calls)), MARGIN_NS):
        return guess
    return max(sorted(range(-MAX_OFFSET_NS, MAX_OFFSET_NS + 1, 250), key=lambda shift: abs(shift - guess)), key=fit)


def assign_spans(
    starts: NDArray[Any],
    ends: NDArray[Any],
    edges: NDArray[Any],
    activity: Callable[[int], str] = lambda i: f"activity {i}",
    span: Callable[[int], str] = lambda i: f"span {i}",
) -> NDArray[Any]:
    """The index i of the span in which each activity starts: edges[i] <= start < edges[i + 1], in ns.

    Only the time decides, not the host thread that launched an activity. `activity` and `span` name them in error
    messages. A span may remain empty; the caller judges that.

    Raises `RecorderError` if the edges are not in order (the clock ran backwards), or if an activity has no times, lies
    outside every span or ends more than `MAX_OFFSET_NS` after its span.
    """
    for i in np.flatnonzero(np.diff(edges) < 0)[:1].tolist():
        raise RecorderError(f"the recorder's clock ran backwards: {span(i)} is [{edges[i]}, {edges[i + 1]}] ns")
    for i in np.flatnonzero((starts <= 0) | (ends < starts))[:1].tolist():
        raise RecorderError(f"{activity(i)} has no valid times: [{starts[i]}, {ends[i]}] ns")
    found = np.searchsorted(edges, starts, side="right") - 1
    last = len(edges) - 2
    for i in np.flatnonzero((found < 0) | (found > last))[:1].tolist():
        if last < 0:
            where = "and there are no spans"
        elif found[i] < 0:
            where = f"{(edges[0] - starts[i]) / 1000:.1f} us before {span(0)}"
        else:
            where = f"{(starts[i] - edges[-1]) / 1000:.1f} us after {span(last)}: a call's wait did not wait for it"
        raise RecorderError(f"{activity(i)} ran outside every span, {where}")
    late = ends - edges[found + 1]
    for i in np.flatnonzero(late > MAX_OFFSET_NS)[:1].tolist():
        raise RecorderError(f"{activity(i)} was still running {late[i] / 1000:.1f} us after {span(int(found[i]))}")
    return found
