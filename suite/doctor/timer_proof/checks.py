"""Compares recorded times with expected ones. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suite.timing import Timing

SHARE, SHORT_US, SLACK_US = 0.01, 20.0, 0.3
"""The standard tolerance: SHARE of an expected time above SHORT_US, else SLACK_US. SHARE covers the launch (1 to 2 us)
and cache effects in long work, SLACK_US a few steps of the device's clock."""
OK, OFF, NOT_RUN = "ok", "off", "not run"

Timings = Mapping[str, Timing]
"""All timings recorded so far, by the name of the call."""
Tolerance = Callable[[float], float]
"""Gives the tolerated difference in us for an expected time in us."""


class UnknownError(Exception):
    """An expected time cannot be computed, because a timing that it is derived from was not recorded."""


def standard(expected_us: float) -> float:
    """The standard tolerance in us of an expected time in us."""
    return SHARE * expected_us if expected_us > SHORT_US else SLACK_US


def share(fraction: float) -> Tolerance:
    """A tolerance of this fraction of the expected time."""
    return lambda expected_us: fraction * expected_us


@dataclass(frozen=True)
class Check:
    """The expectation for one call."""

    framework: str
    work: str
    """A description of the work."""
    call: str
    """The name of the call in `Timings`."""
    expect: Callable[[Timings], float | None]
    """The expected time in us; None if this machine cannot provide the data for it."""
    because: str
    """The reason for this time, and the tolerance unless it is the standard one."""
    down: Tolerance = standard
    up: Tolerance = standard
    activities: Mapping[str, int] | None = field(default_factory=lambda: {"kernel": 1})
    """The required number of activities of each kind; None for any number."""
    requirement: Callable[[Timing], str] = lambda timing: ""
    """A further requirement. Returns a complaint about the timing, or an empty text."""
    note: Callable[[Timings], str] = lambda timings: ""


@dataclass(frozen=True)
class ProofRow:
    """One row of the table: a check and its verdict. Unknown times are None."""

    framework: str
    work: str
    recorded_us: float | None
    expected_us: float | None
    ratio: float | None
    """Recorded time divided by expected time."""
    low_us: float | None
    high_us: float | None
    verdict: str
    """OK, OFF or NOT_RUN."""
    because: str = ""
    activities: str = ""
    samples: int = 0
    note: str = ""


def judge(check: Check, timings: Timings) -> ProofRow:
    """The row of one check, given all timings so far."""
    timing = timings.get(check.call)
    if timing is None or timing.device_us is None:
        why = "not recorded" if timing is None else timing.error or timing.recorder_reason or "not recorded"
        return _row(check, OFF, note=why)
    recorded, seen = timing.device_us, _count(timing)
    facts: dict[str, Any] = {"recorded_us": recorded, "activities": seen, "samples": timing.samples}
    try:
        expected = check.expect(timings)
    except UnknownError as error:
        return _row(check, OFF, **facts, note=f"no expectation: {error}")
    if expected is None:
        return _row(check, NOT_RUN, **facts, note="this machine has no data for the expected time")
    low, high = expected - check.down(expected), expected + check.up(expected)
    wanted = seen if check.activities is None else _spell(check.activities)
    complaints = [f"the record should hold {wanted}" if seen != wanted else "", check.requirement(timing)]
    off = not low <= recorded <= high or any(complaints)
    facts |= {"expected_us": expected, "ratio": recorded / expected if expected else None}
    note = "; ".join(filter(None, [*complaints, *timing.flags, check.note(timings)]))
    return _row(check, OFF if off else OK, **facts, low_us=low, high_us=high, note=note)


def _row(check: Check, verdict: str, **known: Any) -> ProofRow:
    empty = dict.fromkeys(("recorded_us", "expected_us", "ratio", "low_us", "high_us"))
    return ProofRow(
        framework=check.framework, work=check.work, verdict=verdict, because=check.because, **{**empty, **known}
    )


def without_times(framework: str, work: str, verdict: str, reason: str) -> ProofRow:
    """The row of work without a time: its framework is not installed (NOT_RUN), or it failed (OFF)."""
    return ProofRow(framework, work, None, None, None, None, None, verdict, note=reason)


def passed(rows: Sequence[ProofRow]) -> bool:
    """True if no row is off and at least one is ok."""
    return all(row.verdict != OFF for row in rows) and any(row.verdict == OK for row in rows)


def _count(timing: Timing) -> str:
    return _spell(Counter(activity.kind for activity in timing.activities))


def _spell(activities: Mapping[str, int]) -> str:
    """The number of activities of each kind: `2 kernels, 1 memset`."""
    return ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in sorted(activities.items()))
