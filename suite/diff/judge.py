"""Two results of `compare`, row by row: SAME, FASTER, SLOWER or AMBIGUOUS, and what broke.

**What is decided.** The ratio of two speeds, NEW over BASE: above 1 is faster. With a threshold t a row is SLOWER if it
takes more than 1 + t times as long, FASTER if it takes less than 1 / (1 + t): swapping the runs swaps the words.

    FASTER, SLOWER   the whole 95% interval of the ratio lies beyond the threshold, on one side
    SAME             the whole interval lies within it; a difference that is certain but smaller than t is SAME too, and
                     the ratio says how large it is
    AMBIGUOUS        the interval reaches over an edge, or there is none: more samples or a wider threshold can tell
    BROKEN, FIXED    from ok to wrong, error or timeout; from one of these to ok
    UNTIMED          everything else: one of the two has no time, and there is nothing to decide

t is the allowance for what no interval of one run can know: where memory came to lie, what tuning settled on. The ratio
of an unchanged row has to be off by t and its interval on top to be called SLOWER, so that hundreds of rows need no
correction for their number.

**The evidence.** `device_us` is what we want to know, but clocks, heat and neighbours differ between two runs, and no
interval within a run shows it. A vendor's line of the same case, whose samples took turns with ours, went through the
same; dividing by it removes what the two have in common, at the price of its own noise. So `vs_best` is the better
evidence, with three precautions:

- Which vendor line is best changes between runs, often between near ties. The control is therefore one line for both
  runs: the vendor line of the case that is fastest over the two. A row's speed is vs_best(row) / vs_best(control), and
  this is vs_best itself where the control was the best.
- A control has to hold still. If its versions changed, or its own time by more than t and its clock explain, a row is
  judged by `device_us` as well, and the interval spans both: a verdict has to hold either way.
- The control itself, and a row without an interval of `vs_best` in both runs, are judged by `device_us` alone, and
  there the SM clocks count. A kernel follows the clock in full (arithmetic) or not at all (memory); the interval spans
  both, so that a loss that a lower clock could explain is not SLOWER.

**The interval of a ratio.** The runs are independent, so errors add as squares; each interval's arms, which need not be
equal, are taken apart for it (square-and-add, or MOVER: Zou and Donner 2008). With l = log(speed):

    log ratio = l_new - l_base,   arm down = hypot(down_new, up_base),   arm up = hypot(up_new, down_base)

It holds the true ratio 95% of the time or more, also where times are skewed or heavy-tailed (tests/test_diff.py). The
ends of one interval over the opposite ends of the other would be up to 1.4 times as wide. vs_best of a row and of the
control share the best line's noise, which the squares count twice: wider than needed, never narrower. Times of very
short kernels are a few ticks of the device's clock, and their intervals may have no width at all: half a tick of each
time is one more error.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from suite.core.errors import ResultsError, UsageError
from suite.core.text import one_line
from suite.results.row import FAILURES, STATUSES, Row, read_rows

THRESHOLD = 0.03
VERDICTS = ("BROKEN", "SLOWER", "AMBIGUOUS", "FASTER", "FIXED", "SAME", "UNTIMED")
"""The worst first."""
TICK_US = {"cupti": 0.032}
"""Step of a recorder's clock: CUPTI's timestamps on an H200 are multiples of 32 ns. Other recorders' are too fine to
matter."""
ROUNDING = 1e-12
"""A ratio exactly at the threshold is within it, whatever the last bits of the logarithms."""
NUMBERS = ("device_us", "device_us_low", "device_us_high", "vs_best", "vs_best_low", "vs_best_high", "clock_sm_mhz")
CLOCK_CHANGE = 0.01
"""Relative change of the SM clock from which on a row mentions it."""

Key = tuple[str, ...]


@dataclass(frozen=True)
class Estimate:
    """Logarithm of a speed or of a ratio of speeds, and how far its 95% interval reaches: infinitely if it has none."""

    value: float
    down: float = math.inf
    up: float = math.inf

    @classmethod
    def of(cls, value: float, low: float | None, high: float | None) -> Estimate:
        if not low or not high:
            return cls(math.log(value))
        return cls(math.log(value), math.log(value) - math.log(low), math.log(high) - math.log(value))

    @property
    def low(self) -> float:
        return self.value - self.down

    @property
    def high(self) -> float:
        return self.value + self.up

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, self.up, self.down)

    def __sub__(self, other: Estimate) -> Estimate:
        """Difference of two independent estimates: their arms add as squares."""
        down, up = math.hypot(self.down, other.up), math.hypot(self.up, other.down)
        return Estimate(self.value - other.value, down, up)

    def blurred(self, arm: float) -> Estimate:
        """The same with one more independent error."""
        return Estimate(self.value, math.hypot(self.down, arm), math.hypot(self.up, arm))

    def spanning(self, other: Estimate) -> Estimate:
        """The interval that holds both. The value is the one that claims less."""
        value = min(self.value, other.value, key=abs)
        return Estimate(value, value - min(self.low, other.low), max(self.high, other.high) - value)


@dataclass(frozen=True)
class Result:
    """One side. `environment` is None where no environment.json lies beside the tables."""

    path: Path
    rows: dict[Key, Row]
    environment: dict[str, Any] | None = None

    @property
    def device(self) -> str | None:
        """Name of the device that the run was for."""
        return None if self.environment is None else str(self.environment["device"]["name"])

    def device_of(self, row: Row) -> str | None:
        """Name of the device that this row ran on: a line may run on the host of a GPU."""
        if self.environment is None or row.device != "cpu" or self.environment["device"].get("type") == "cpu":
            return self.device
        host = self.environment.get("host")
        return str(host.get("name")) if isinstance(host, dict) else None


@dataclass(frozen=True)
class Pair:
    """A row that is in both. `apart` says why their times have nothing to do with each other; empty if they have."""

    base: Row
    new: Row
    apart: str = ""

    @property
    def sides(self) -> tuple[tuple[str, Row], tuple[str, Row]]:
        return ("BASE", self.base), ("NEW", self.new)

    @property
    def timed(self) -> bool:
        return not self.apart and all(_timed(row) for _, row in self.sides)

    @property
    def ranked(self) -> bool:
        """Both have vs_best with its interval."""
        return all(row.vs_best and row.vs_best_low and row.vs_best_high for _, row in self.sides)


@dataclass(frozen=True)
class Change:
    """What became of a row. `evidence` is what it was judged by: vs_best, device_us or both; empty without times.
    `control` is the vendor line behind vs_best; empty where that had no part."""

    base: Row
    new: Row
    verdict: str
    ratio: Estimate | None = None
    evidence: str = ""
    control: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diff:
    """Everything there is to show."""

    base: Result
    new: Result
    threshold: float
    changes: tuple[Change, ...]

    @property
    def only_in_base(self) -> list[Row]:
        return [row for key, row in self.base.rows.items() if key not in self.new.rows]

    @property
    def only_in_new(self) -> list[Row]:
        return [row for key, row in self.new.rows.items() if key not in self.base.rows]

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(change.verdict for change in self.changes)
        return {verdict: counted[verdict] for verdict in VERDICTS}

    @cached_property
    def several_kinds(self) -> bool:
        """Whether lines of a GPU stand beside lines of its host."""
        return len({key[-1] for key in (*self.base.rows, *self.new.rows)}) > 1

    def line_name(self, row: Row) -> str:
        """`jax`, or `jax on cpu` beside the GPU's `jax`."""
        on_host = self.several_kinds and row.device == "cpu"
        return one_line(f"{row.implementation} on cpu" if on_host else row.implementation)

    @property
    def exit_status(self) -> int:
        """3 when a row is SLOWER or BROKEN, else 0."""
        return 3 if self.counts["SLOWER"] or self.counts["BROKEN"] else 0


def compare(base: Path, new: Path, threshold: float = THRESHOLD) -> Diff:
    """Two results, each a folder or one table. Raises `UsageError` if they cannot be read, or cannot be compared."""
    if not 0 < threshold < 1:
        raise UsageError(f"--threshold {threshold:g}: must lie between 0 and 1, e.g. 0.03 for three percent")
    return judge(load(base), load(new), threshold)


def load(path: Path) -> Result:
    """A results folder, or one table, with the environment.json beside it. Raises `UsageError`."""
    try:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        folder, tables = (path, sorted(path.glob("*.csv"))) if path.is_dir() else (path.parent, [path])
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if not tables:
        raise UsageError(f"{path}: no results here: the folder holds no .csv")
    rows: dict[Key, Row] = {}
    for table in tables:
        try:
            found = read_rows(table)
        except ResultsError as error:
            raise UsageError(one_line(error)) from error
        for place, row in enumerate(found, 1):
            damage = _damage(row) or ("there is another row like it" if row_key(row) in rows else "")
            if damage:
                raise UsageError(f"{table}: not a results table, or a damaged one: row {place}: {one_line(damage)}")
            numbers: dict[str, Any] = {
                name: float(value) for name in NUMBERS if (value := getattr(row, name)) is not None
            }
            rows[row_key(row)] = replace(row, **numbers)
    return Result(path, rows, _environment(folder / "environment.json"))


def row_key(row: Row) -> Key:
    """What makes two rows the same. The index of a GPU does not matter, its name does."""
    return (*row.case_key, row.implementation, row.device.partition(":")[0])


def _damage(row: Row) -> str:
    """What shows that this suite did not write a row; empty if nothing does."""
    for column in fields(Row):
        if column.type in ("str", "int") and getattr(row, column.name) is None:
            return f"{column.name} is missing"
    if row.status not in STATUSES:
        return f"status is {row.status!r}"
    for name in NUMBERS:
        value = getattr(row, name)
        if value is not None and not 0 <= _float(value) < math.inf:
            return f"{name} is {value!r}, which nothing measures"
    for name in ("device_us", "vs_best"):
        value, low, high = (getattr(row, name + end) for end in ("", "_low", "_high"))
        if None not in (value, low, high) and not _float(low) <= _float(value) <= _float(high):
            return f"{name} is {value}, outside its interval from {low} to {high}"
    return ""


def _float(value: Any) -> float:
    """One entry that is no number makes its whole column text; NaN for that entry only."""
    try:
        return float(value)
    except ValueError:
        return math.nan


def _environment(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found["device"]["name"], str):
            raise TypeError("the name of the device is not a text")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable environment record: {one_line(repr(error))}") from error
    return found


def judge(base: Result, new: Result, threshold: float) -> Diff:
    """Every row that is in both. Raises `UsageError` where comparing would mean nothing."""
    _refuse_devices(base, new)
    cases: dict[Key, list[Pair]] = {}
    for key, row in base.rows.items():
        if key in new.rows:
            then, now = base.device_of(row), new.device_of(new.rows[key])
            apart = f"on {then} in BASE, on {now} in NEW" if then and now and then != now else ""
            cases.setdefault((*row.case_key, key[-1]), []).append(Pair(row, new.rows[key], apart))
    if not cases:
        raise UsageError(f"cannot be compared: {base.path} and {new.path} have no row in common")
    _refuse_conditions([pair for pairs in cases.values() for pair in pairs])
    return Diff(base, new, threshold, tuple(change for pairs in cases.values() for change in _case(pairs, threshold)))


def _refuse_devices(base: Result, new: Result) -> None:
    if base.device is not None and new.device is not None and base.device != new.device:
        names = f"BASE was measured on {one_line(base.device)}, NEW on {one_line(new.device)}"
        raise UsageError(f"cannot be compared: {names}; a difference would say nothing about the code")


def _refuse_conditions(pairs: Sequence[Pair]) -> None:
    for what in ("recorder", "cache"):
        differing = [pair for pair in pairs if pair.timed and getattr(pair.base, what) != getattr(pair.new, what)]
        if differing:
            then, now = (one_line(getattr(row, what)) or "unknown" for _, row in differing[0].sides)
            names = ", ".join(f"{case_name(pair.base)} {one_line(pair.base.implementation)}" for pair in differing[:3])
            more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
            raise UsageError(f"cannot be compared: the {what} is {then} in BASE and {now} in NEW for {names}{more}")


def _case(pairs: Sequence[Pair], threshold: float) -> Iterator[Change]:
    """The rows of one case, against the vendor line that is their control."""
    control = _control(pairs)
    doubt = "" if control is None else _doubt(control, threshold)
    for pair in pairs:
        if not pair.timed:
            yield _untimed(pair)
            continue
        ratio, evidence, name, notes = _absolute(pair), "device_us", "", list(_notes(pair))
        if control is not None and control is not pair and pair.ranked:
            relative, name = _relative(pair, control), control.base.implementation
            ratio, evidence = (ratio.spanning(relative), "both") if doubt else (relative, "vs_best")
            notes = [doubt, *notes] if doubt else notes
        yield Change(pair.base, pair.new, decide(ratio, threshold), ratio, evidence, name, tuple(notes))


def decide(ratio: Estimate, threshold: float) -> str:
    """The verdict on a ratio of speeds."""
    edge = math.log1p(threshold) + ROUNDING
    if ratio.low > edge:
        return "FASTER"
    if ratio.high < -edge:
        return "SLOWER"
    return "SAME" if -edge <= ratio.low and ratio.high <= edge else "AMBIGUOUS"


def _control(pairs: Sequence[Pair]) -> Pair | None:
    """The vendor line that is fastest over the two runs. Names decide a tie: the order of the runs must not."""

    def slowness(pair: Pair) -> tuple[float, str]:
        return _us(pair.base) * _us(pair.new), pair.base.implementation

    vendors = [pair for pair in pairs if pair.timed and pair.ranked and pair.base.vendor and pair.new.vendor]
    return min(vendors, key=slowness, default=None)


def _doubt(control: Pair, threshold: float) -> str:
    """Why a control is none; empty for one that held still."""
    name, ratio = control.base.implementation, _absolute(control)
    if control.base.versions != control.new.versions:
        return f"versions of {name}: {control.base.versions} -> {control.new.versions}"
    if decide(ratio, threshold) in ("FASTER", "SLOWER"):
        return f"{name} itself is {as_ratio(ratio.value):.3g} times as fast"
    return ""


def _absolute(pair: Pair) -> Estimate:
    """By `device_us`. The clock may explain all of a change, or nothing."""

    def speed(row: Row) -> Estimate:
        return (-Estimate.of(_us(row), row.device_us_low, row.device_us_high)).blurred(_half_tick(row))

    ratio, clock_loss = speed(pair.new) - speed(pair.base), _clock_loss(pair)
    return Estimate(ratio.value, ratio.down + max(0.0, -clock_loss), ratio.up + max(0.0, clock_loss))


def _relative(pair: Pair, control: Pair) -> Estimate:
    """By `vs_best`: the time of the control over this row's, each from samples of one run."""

    def speed(row: Row, vendor: Row) -> Estimate:
        ours, theirs = (Estimate.of(r.vs_best or math.nan, r.vs_best_low, r.vs_best_high) for r in (row, vendor))
        return (ours - theirs).blurred(math.hypot(_half_tick(row), _half_tick(vendor)))

    return speed(pair.new, control.new) - speed(pair.base, control.base)


def _timed(row: Row) -> bool:
    return row.status == "ok" and bool(row.device_us) and not row.suspect


def _us(row: Row) -> float:
    return row.device_us or math.nan


def _half_tick(row: Row) -> float:
    """Half a step of the recorder's clock, relative to the time."""
    return TICK_US.get(row.recorder, 0.0) / 2 / _us(row)


def _clock_loss(pair: Pair) -> float:
    """Logarithm of BASE's SM clock over NEW's; 0 where it is not known."""
    then, now = pair.base.clock_sm_mhz, pair.new.clock_sm_mhz
    return math.log(then) - math.log(now) if then and now else 0.0


def _untimed(pair: Pair) -> Change:
    """A row that has no ratio: one of the two is not right, or has no time."""
    base, new = pair.base, pair.new
    statuses = f"{base.status} -> {new.status}"
    if base.status == "ok" and new.status in FAILURES:
        return Change(base, new, "BROKEN", notes=(f"{statuses}: {new.reason}",))
    if base.status in FAILURES and new.status == "ok":
        return Change(base, new, "FIXED", notes=(statuses,))
    if base.status != new.status:
        return Change(base, new, "UNTIMED", notes=(f"{statuses}: {new.reason}" if new.reason else statuses,))
    if pair.apart:
        return Change(base, new, "UNTIMED", notes=(pair.apart,))
    missing = [f"no time in {side}: {row.reason or row.flags}" for side, row in pair.sides if not _timed(row)]
    return Change(base, new, "UNTIMED", notes=tuple(missing) if len(missing) == 1 else ())


def _notes(pair: Pair) -> Iterator[str]:
    """What a reader should know before believing a verdict."""
    for side, row in pair.sides:
        about = "; ".join(text for text in (row.reason, row.flags) if text)
        missing = "no 95% interval" if row.device_us_low is None or row.device_us_high is None else ""
        if about or missing:
            yield f"{side}: {about or missing}"
    if pair.base.config != pair.new.config:
        yield f"config: {pair.base.config or 'none'} -> {pair.new.config or 'none'}"
    if abs(_clock_loss(pair)) > CLOCK_CHANGE:
        yield f"SM clock: {pair.base.clock_sm_mhz:.0f} -> {pair.new.clock_sm_mhz:.0f} MHz"


def as_ratio(logarithm: float) -> float:
    """`exp` that does not overflow, whatever a table claims."""
    return math.exp(max(-700.0, min(700.0, logarithm)))


def case_name(row: Row) -> str:
    return one_line(" ".join(row.case_key))
