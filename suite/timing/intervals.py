"""Activities of the device, and the windows of time they are assigned to. Plain functions on plain numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from suite.errors import SuiteError


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


class Window(NamedTuple):
    """A span of the recorder's clock that belongs to one sample of the call `name`; to no call (the cache being
    evicted before a sample) if `name` is None."""

    name: str | None
    open: int
    close: int


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Length of the union of (start, end) intervals: time with at least one of them running.

    Not the span from first start to last end, which counts gaps that the recorder itself widens, and not the sum, which
    counts twice what overlaps.
    """
    total, reach = 0, None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            total, reach = total + end - start, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total


def one_by_one(activities: Sequence[Activity]) -> bool:
    """Whether each was launched by itself, and no two ran at the same time."""
    ordered = sorted((activity.start, activity.end) for activity in activities)
    apart = all(later[0] >= before[1] for before, later in pairwise(ordered))
    return apart and not any(activity.of_graph for activity in activities)


def places(starts: NDArray[Any], ends: NDArray[Any], edges: NDArray[Any]) -> NDArray[Any] | None:
    """The place i of each activity, edges[i] <= start and end <= edges[i + 1]; None if one has none, or no valid times,
    or the edges are not in order. What `assign` does one by one, and says why, for all at once.
    """
    if (np.diff(edges) < 0).any() or (starts <= 0).any() or (ends < starts).any():
        return None
    found = np.searchsorted(edges, starts, side="right") - 1
    inside = (found >= 0) & (found < len(edges) - 1)
    if not inside.all() or (ends > edges[found + 1]).any():
        return None
    return found


def assign(activities: Iterable[Activity], windows: Sequence[Window]) -> list[list[Activity]]:
    """The activities that lie in each window, ordered by start.

    The time alone decides, so it does not matter which host thread launched an activity. Raises `RecorderError` for
    windows that are not in order (the clock ran backwards), for an activity without times, outside every window, or
    across the edge of one. A window may come out empty: whether it should is for the caller to say.
    """
    reach = None
    for window in windows:
        if window.close < window.open or (reach is not None and window.open < reach):
            raise RecorderError(
                f"the recorder's clock ran backwards: {_label(window)} is [{window.open}, {window.close}] ns"
                + (f", after one that closed at {reach} ns" if reach is not None else "")
            )
        reach = window.close
    opens = [window.open for window in windows]
    found: list[list[Activity]] = [[] for _ in windows]
    for activity in sorted(activities, key=lambda a: a.start):
        if activity.start <= 0 or activity.end < activity.start:
            raise RecorderError(f"{_what(activity)} has no valid times: [{activity.start}, {activity.end}] ns")
        index = bisect_right(opens, activity.start) - 1
        if index < 0 or activity.start >= windows[index].close:
            raise RecorderError(f"{_what(activity)} ran outside every window, {_nearest(activity, windows)}")
        window = windows[index]
        if activity.end > window.close:
            late = (activity.end - window.close) / 1000
            raise RecorderError(f"{_what(activity)} was still running {late:.1f} us after {_label(window)} closed")
        found[index].append(activity)
    return found


def _what(activity: Activity) -> str:
    return f"{activity.kind} {activity.name[:80]!r}" if activity.name != activity.kind else activity.kind


def _label(window: Window) -> str:
    return f"the window of {window.name!r}" if window.name is not None else "the window of a preparation"


def _nearest(activity: Activity, windows: Sequence[Window]) -> str:
    """Where a stray activity lies: told by the closest window, since that is the likeliest culprit."""
    if not windows:
        return "of which there are none"
    distances = [(max(w.open - activity.start, activity.start - w.close), w) for w in windows]
    distance, window = min(distances, key=lambda pair: pair[0])
    side = "before" if activity.start < window.open else "after"
    return f"{distance / 1000:.1f} us {side} {_label(window)}: a call's wait did not wait for all its work"
