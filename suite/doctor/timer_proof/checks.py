"""What the timer recorded against what it should have. Plain functions on plain numbers."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from suite.results.render import number, pipe_table, plain
from suite.timing import Timing, union_ns

if TYPE_CHECKING:
    from rich.table import Table

SHARE, SHORT_US, SLACK_US = 0.01, 20.0, 0.3
"""Tolerance: 1%, which a launch (1 to 2 us) and the cache's edges stay under in work long enough; up to 20 us it is
0.3 us, a few steps of the device's clock."""
OK, OFF, NOT_RUN = "ok", "off", "not run"

Timings = Mapping[str, Timing]
Tolerance = Callable[[float], float]


class UnknownError(Exception):
    """An expectation that cannot be formed, because what it is derived from was not recorded."""


def standard(expected_us: float) -> float:
    """The tolerance, in us, of a time that should be `expected_us`."""
    return SHARE * expected_us if expected_us > SHORT_US else SLACK_US


def share(fraction: float) -> Tolerance:
    return lambda expected_us: fraction * expected_us


@dataclass(frozen=True)
class Check:
    """What the call named `call` should take. `expect` is in us; None where this machine cannot tell."""

    framework: str
    work: str
    call: str
    expect: Callable[[Timings], float | None]
    because: str
    """Where the expectation comes from; and the tolerance, where it is not the standard one."""
    down: Tolerance = standard
    up: Tolerance = standard
    activities: Mapping[str, int] | None = field(default_factory=lambda: {"kernel": 1})
    """How many kernels, copies and fills the record must hold; None if that does not matter."""
    also: Callable[[Timing], str] = lambda timing: ""
    """What else is wrong with the record; empty if nothing is."""
    note: Callable[[Timings], str] = lambda timings: ""


@dataclass(frozen=True)
class Line:
    """A check and its verdict."""

    framework: str
    work: str
    recorded_us: float | None
    expected_us: float | None
    ratio: float | None
    low_us: float | None
    high_us: float | None
    verdict: str
    because: str = ""
    activities: str = ""
    samples: int = 0
    note: str = ""


def judge(check: Check, timings: Timings) -> Line:
    """The line of one check, given everything recorded so far."""
    timing = timings.get(check.call)
    if timing is None or timing.device_us is None:
        why = "not recorded" if timing is None else timing.error or timing.recorder_reason or "not recorded"
        return _line(check, OFF, note=why)
    recorded, seen = timing.device_us, _count(timing)
    facts: dict[str, Any] = {"recorded_us": recorded, "activities": seen, "samples": timing.samples}
    try:
        expected = check.expect(timings)
    except UnknownError as error:
        return _line(check, OFF, **facts, note=f"no expectation: {error}")
    if expected is None:
        return _line(check, NOT_RUN, **facts, note="this machine does not tell what to expect")
    low, high = expected - check.down(expected), expected + check.up(expected)
    wanted = seen if check.activities is None else _spell(check.activities)
    complaints = [f"the record should hold {wanted}" if seen != wanted else "", check.also(timing)]
    off = not low <= recorded <= high or any(complaints)
    facts |= {"expected_us": expected, "ratio": recorded / expected if expected else None}
    note = "; ".join(filter(None, [*complaints, *timing.flags, check.note(timings)]))
    return _line(check, OFF if off else OK, **facts, low_us=low, high_us=high, note=note)


def _line(check: Check, verdict: str, **known: Any) -> Line:
    empty = dict.fromkeys(("recorded_us", "expected_us", "ratio", "low_us", "high_us"))
    return Line(
        framework=check.framework, work=check.work, verdict=verdict, because=check.because, **{**empty, **known}
    )


def without(framework: str, work: str, verdict: str, reason: str) -> Line:
    """A line without numbers: of what is not installed (`not run`) or does not work (`off`)."""
    return Line(framework, work, None, None, None, None, None, verdict, note=reason)


def _count(timing: Timing) -> str:
    return _spell(Counter(activity.kind for activity in timing.activities))


def _spell(activities: Mapping[str, int]) -> str:
    """`2 kernels, 1 memset`."""
    return ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in sorted(activities.items()))


# ---- expectations ----------------------------------------------------------------------------------------------------


def recorded(name: str, timings: Timings) -> float:
    timing = timings.get(name)
    if timing is None or timing.device_us is None:
        raise UnknownError(f"{name} was not recorded")
    return timing.device_us


def times(factor: float, name: str) -> Callable[[Timings], float]:
    """So many times what another call took."""
    return lambda timings: factor * recorded(name, timings)


def total(*names: str) -> Callable[[Timings], float]:
    """What other calls took, added up."""
    return lambda timings: sum(recorded(name, timings) for name in names)


def cycles(count: int, name: str, after: str = "") -> Callable[[Timings], float | None]:
    """Clock cycles at the SM clock read during the call `name`, on top of what the call `after` took."""

    def expect(timings: Timings) -> float | None:
        recorded(name, timings)
        clock = timings[name].clock_sm_mhz
        return None if not clock else count / clock + (recorded(after, timings) if after else 0.0)

    return expect


def host_clock(name: str) -> Callable[[Timings], float | None]:
    """What the host's clock said of the same call."""
    return lambda timings: timings[name].latency_us


def idle_of(us: float) -> Callable[[Timing], str]:
    """Requires that the record has a gap of this length: the gap is what is tested."""

    def complaint(timing: Timing) -> str:
        span, busy = _span_and_busy(timing)
        return "" if span - busy >= us else f"the device was idle for {span - busy:.0f} us only"

    return complaint


def overlap_of(us: float) -> Callable[[Timing], str]:
    """Requires that activities ran at the same time for so long."""

    def complaint(timing: Timing) -> str:
        both = sum(a.end - a.start for a in timing.activities) / 1000 - _span_and_busy(timing)[1]
        return "" if both >= us else f"the kernels overlapped for {both:.0f} us only"

    return complaint


def _span_and_busy(timing: Timing) -> tuple[float, float]:
    """From the first start to the last end, and busy in between, of the last sample, in us."""
    if not timing.activities:
        return 0.0, 0.0
    intervals = [(activity.start, activity.end) for activity in timing.activities]
    span = max(end for _, end in intervals) - min(start for start, _ in intervals)
    return span / 1000, union_ns(intervals) / 1000


# ---- the table -------------------------------------------------------------------------------------------------------

HEADS = (
    "verdict",
    "framework",
    "work",
    "recorded us",
    "expected us",
    "ratio",
    "allowed us",
    "expected because",
    "note",
)
NUMERIC = frozenset(HEADS[3:7])
STYLES = {OK: "green", OFF: "bold red", NOT_RUN: "yellow"}


def passed(lines: Sequence[Line]) -> bool:
    """No line is off, and there was something to prove."""
    return all(line.verdict != OFF for line in lines) and any(line.verdict == OK for line in lines)


def summary(lines: Sequence[Line]) -> str:
    counts = Counter(line.verdict for line in lines)
    return f"{len(lines)} lines: " + ", ".join(f"{counts[v]} {v}" for v in (OFF, NOT_RUN, OK) if counts[v])


def cells(line: Line) -> tuple[str, ...]:
    allowed = "" if line.low_us is None else f"{number(line.low_us, 5)} to {number(line.high_us, 5)}"
    seen = "" if line.activities == "1 kernel" else line.activities
    return (
        line.verdict,
        line.framework,
        line.work,
        number(line.recorded_us, 5),
        number(line.expected_us, 5),
        number(line.ratio, 4),
        allowed,
        line.because,
        "; ".join(filter(None, [seen, line.note])),
    )


def rich_table(lines: Iterable[Line], title: str) -> Table:
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title=escape(title), title_justify="left")
    for head in HEADS:
        shown.add_column(head, justify="right" if head in NUMERIC else "left", overflow="fold")
    for line in lines:
        verdict, *rest = cells(line)
        shown.add_row(f"[{STYLES[verdict]}]{verdict}[/]", *map(escape, rest))
    return shown


def plain_line(line: Line) -> str:
    """One line of text, for a log."""
    verdict, framework, work, ours, expected, ratio, allowed, because, note = cells(line)
    parts = [f"{verdict:7}", framework, work]
    parts += [f"recorded {ours} us"] if ours else []
    parts += [f"expected {expected} us ({because})", f"ratio {ratio}", f"allowed {allowed}"] if expected else []
    return "  ".join([*parts, note] if note else parts)


def to_csv(lines: Iterable[Line]) -> str:
    names = [each.name for each in fields(Line)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in asdict(line).items()} for line in lines)
    return text.getvalue()


def document(lines: Sequence[Line], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, as JSON has it."""
    return {"environment": dict(environment), "passed": passed(lines), "lines": [asdict(line) for line in lines]}


def markdown(lines: Sequence[Line], environment: Mapping[str, Any]) -> str:
    device = plain(environment.get("device", {}).get("name", "unknown"))
    packages = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    command = str(environment.get("command", "")).replace("`", "'")
    body = [[plain(cell) for cell in cells(line)] for line in lines]
    return "\n".join(
        [
            f"# The timer on {device}",
            "",
            f"Work of known cost, recorded as `compare` records. Command: `{command}`. Versions: {plain(packages)}.",
            f"Tolerance, where nothing else is said: {100 * SHARE:g}% of what is expected above {SHORT_US:g} us, "
            f"{SLACK_US:g} us up to there. `ratio` is recorded over expected. {summary(lines)}.",
            "",
            pipe_table(list(HEADS), body, right=set(NUMERIC)),
            "",
        ]
    )
