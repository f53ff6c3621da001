"""Activities of the device, and the spans of time they are assigned to. Plain functions on plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from suite.core.errors import SuiteError


class RecorderError(SuiteError):
    """The record contradicts itself or is incomplete, so that no number can be had from it."""


class NoRecorderError(SuiteError):
    """This process cannot have the recorder. The message is the reason, and the way to change it."""


class Activity(NamedTuple):
    """One kernel, copy or fill on the device. Times are nanoseconds of the recorder's clock."""

    name: str
    start: int
    end: int
    kind: str
    of_graph: bool = False
    """Whether a CUDA graph launched it."""


CLOCKS_NS = 5_000
"""How far device times, once converted to the recorder's clock, may be from it: on H200s it was some 3 us, to either
side in different processes."""
ROOM_NS = 500
"""Between an activity and the edges of its span, at least, if the clocks are taken for right."""


def covered_ns(starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
    """How much each interval adds to the union of those before it. `starts` in order."""
    reach = np.maximum.accumulate(np.concatenate([starts[:1], ends[:-1]]))
    added: NDArray[Any] = np.maximum(ends - np.maximum(starts, reach), 0)
    return added


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Length of the union of (start, end) intervals: time with at least one of them running.

    Not the span from first start to last end, which counts gaps that the recorder itself widens, and not the sum, which
    counts twice what overlaps.
    """
    starts, ends = np.array(sorted(intervals), np.int64).reshape(-1, 2).T
    return int(covered_ns(starts, ends).sum())


def one_by_one(activities: Sequence[Activity]) -> bool:
    """Whether each was launched by itself, and no two ran at the same time."""
    ordered = sorted((activity.start, activity.end) for activity in activities)
    apart = all(later[0] >= before[1] for before, later in pairwise(ordered))
    return apart and not any(activity.of_graph for activity in activities)


def clocks_apart(starts: NDArray[Any], ends: NDArray[Any], edges: NDArray[Any], guess: int = 0) -> int:
    """What to add to device times, in nanoseconds, to bring every activity into its span, and one into each call.

    Edges are when the host found the device idle; between them lie, in turn, a preparation and a call. So if clocks are
    apart by more than it takes to launch (2 us), or to see that work is done, activities seem to run before they are
    launched, or after they are waited for. The answer is `guess` if that leaves every activity ROOM_NS, else what is
    nearest to it and does, or the best.
    """

    def fit(shift: int) -> tuple[bool, int, int]:
        """Whether all have ROOM_NS; calls with an activity (some may have none); and the least room, up to ROOM_NS."""
        begin = starts + shift
        found = np.searchsorted(edges, begin, side="right") - 1
        if not ((found >= 0) & (found < len(edges) - 1)).all():
            return False, 0, -CLOCKS_NS
        room = int(np.minimum(begin - edges[found], edges[found + 1] - ends - shift).min(initial=ROOM_NS))
        seen = int(np.count_nonzero(np.bincount(found, minlength=len(edges))[1::2]))
        return room == ROOM_NS, seen, room

    if fit(guess) == (True, max(len(edges) - 1, 0) // 2, ROOM_NS):
        return guess
    return max(sorted(range(-CLOCKS_NS, CLOCKS_NS + 1, 250), key=lambda shift: abs(shift - guess)), key=fit)


def assign(
    starts: NDArray[Any],
    ends: NDArray[Any],
    edges: NDArray[Any],
    activity: Callable[[int], str] = lambda i: f"activity {i}",
    span: Callable[[int], str] = lambda i: f"span {i}",
) -> NDArray[Any]:
    """For each activity the number i of the span that it starts in: edges[i] <= start < edges[i + 1], in nanoseconds.

    The time alone decides, so it does not matter which host thread launched an activity. Raises `RecorderError` for
    edges that are not in order (the clock ran backwards), for an activity without times, outside every span, or running
    on for more than `CLOCKS_NS` after its own. `activity` and `span` name them for that. A span may come out empty:
    whether it should is for the caller to say.
    """
    for i in np.flatnonzero(np.diff(edges) < 0)[:1].tolist():
        raise RecorderError(f"the recorder's clock ran backwards: {span(i)} is [{edges[i]}, {edges[i + 1]}] ns")
    for i in np.flatnonzero((starts <= 0) | (ends < starts))[:1].tolist():
        raise RecorderError(f"{activity(i)} has no valid times: [{starts[i]}, {ends[i]}] ns")
    found = np.searchsorted(edges, starts, side="right") - 1
    last = len(edges) - 2
    for i in np.flatnonzero((found < 0) | (found > last))[:1].tolist():
        if last < 0:
            where = "of which there are none"
        elif found[i] < 0:
            where = f"{(edges[0] - starts[i]) / 1000:.1f} us before {span(0)}"
        else:
            where = f"{(starts[i] - edges[-1]) / 1000:.1f} us after {span(last)}: a call's wait did not wait for it"
        raise RecorderError(f"{activity(i)} ran outside every span, {where}")
    late = ends - edges[found + 1]
    for i in np.flatnonzero(late > CLOCKS_NS)[:1].tolist():
        raise RecorderError(f"{activity(i)} was still running {late[i] / 1000:.1f} us after {span(int(found[i]))}")
    return found
