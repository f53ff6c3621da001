"""Loads the runs of a device in order of time, with the times of each implementation and case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.core.text import one_line
from suite.diff.load import Side, load
from suite.results.groups import standings
from suite.results.row import Row, Status
from suite.results.run_folder import RUNS

CaseKey = tuple[str, ...]


@dataclass(frozen=True)
class RunRecord:
    """One run. `date` is UTC as ISO 8601, or empty if the run does not record it."""

    name: str
    date: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Point:
    """The time of a line in one run. `ratio` is vs_best, or None if the row or its reference is noisy."""

    run: RunRecord
    row: Row
    ratio: float | None


@dataclass(frozen=True)
class Line:
    """One implementation on one case, in the runs that timed it."""

    implementation: str
    points: Sequence[Point]

    @property
    def ratios(self) -> list[float]:
        return [point.ratio for point in self.points if point.ratio is not None]

    @property
    def times(self) -> list[float]:
        return [point.row.device_us for point in self.points if point.row.device_us and not point.row.noisy]

    def at(self, run: RunRecord) -> Point | None:
        return self._by_run.get(run.name)

    @cached_property
    def _by_run(self) -> dict[str, Point]:
        return {point.run.name: point for point in self.points}


@dataclass(frozen=True)
class CaseHistory:
    """The lines of one case, and the runs that timed any of them, the earliest first."""

    operation: str
    case: str
    dtype: str
    precision: str
    device: str
    """`cpu` or `cuda`. In a sweep, the host of a GPU has rows of its own."""
    measured: str
    """Differences from a cold cache and CUPTI's records, such as `warm, wall`; empty if there are none."""
    runs: Sequence[RunRecord]
    lines: Sequence[Line]


@dataclass(frozen=True)
class Filter:
    """Patterns of names. A name must match one of them; an empty list accepts all names."""

    operations: Sequence[str] = ()
    implementations: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    cases: Sequence[str] = ()

    def has(self, row: Row) -> bool:
        names = (row.operation, row.implementation, row.dtype, row.case)
        pairs = zip(names, self._patterns, strict=True)
        return all(not patterns or any(fnmatchcase(name, each) for each in patterns) for name, patterns in pairs)

    @property
    def _patterns(self) -> Sequence[Sequence[str]]:
        return self.operations, self.implementations, self.dtypes, self.cases

    def refuse_unknown(self, rows: Sequence[Row]) -> None:
        """Raise `UsageError` for a pattern that matches no name of `rows`."""
        columns = ("operation", "implementation", "dtype", "case")
        for flag, column, patterns in zip(
            ("--op", "--impl", "--dtype", "--case"), columns, self._patterns, strict=True
        ):
            names = dict.fromkeys(getattr(row, column) for row in rows)
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in names):
                    raise UsageError(f"{flag}: {unknown(pattern, names)}")


@dataclass
class _Found:
    runs: dict[str, RunRecord] = field(default_factory=dict)
    lines: dict[str, list[Point]] = field(default_factory=dict)


def load_history(folder: Path, chosen: Filter, on_damage: Callable[[str], None]) -> list[CaseHistory]:
    """The times of the runs in `folder`, which is `results/<device>/` or a folder of runs.

    A table that cannot be read, or is of another device than the last, is left out, and `on_damage` is called with the
    reason. Raises `UsageError` if there are no runs, or if no run has a time of the `chosen` rows.
    """
    runs = folder / RUNS if (folder / RUNS).is_dir() else folder
    try:
        folders = sorted(path for path in runs.iterdir() if path.is_dir())
    except OSError as error:
        raise UsageError(f"{runs}: no runs here ({error.strerror}); `compare` without --out writes them") from None
    cases: dict[CaseKey, _Found] = {}
    timed: list[Row] = []
    sides = [(path.name, side) for path in folders for side in _tables(path, on_damage)]
    if not sides:
        raise UsageError(f"{runs}: no runs here; `compare` without --out and `nightly` write them")
    for name, side in _on_one_device(sides, on_damage):
        for key, point in _points(name, side):
            timed.append(point.row)
            if chosen.has(point.row):
                found = cases.setdefault(key, _Found())
                found.runs.setdefault(name, point.run)
                found.lines.setdefault(point.row.implementation, []).append(point)
    if timed:
        chosen.refuse_unknown(timed)
    if not cases:
        asked = f"{len(sides)} tables in {len(folders)} runs"
        raise UsageError(f"{runs}: none of the {asked} has a time that matches")
    return [_case(key, found) for key, found in cases.items()]


def _tables(folder: Path, on_damage: Callable[[str], None]) -> Iterator[Side]:
    for table in sorted(folder.glob("*.csv")):
        try:
            yield load(table)
        except UsageError as error:
            on_damage(f"left out: {error}")


def _on_one_device(sides: Sequence[tuple[str, Side]], on_damage: Callable[[str], None]) -> Iterator[tuple[str, Side]]:
    """The runs of one device: that of the last run that names a device. Runs that name none are kept."""
    last = next((side.device for _, side in reversed(sides) if side.device is not None), None)
    for name, side in sides:
        if side.device in (last, None):
            yield name, side
        else:
            on_damage(f"left out: {side.path}: measured on {one_line(side.device or '')}, the last run on {last}")


def _points(name: str, side: Side) -> Iterator[tuple[CaseKey, Point]]:
    """The timed rows of one table."""
    environment = side.environment or {}
    commit = environment.get("git")
    found = RunRecord(
        name,
        str(environment.get("date_utc") or ""),
        str(commit.get("commit") or "") if isinstance(commit, dict) else "",
    )
    groups: dict[CaseKey, list[Row]] = {}
    for row in side.rows.values():
        if row.status is Status.OK and row.device_us:
            groups.setdefault((*row.case_key, row.device.partition(":")[0], _measured(row)), []).append(row)
    for key, rows in groups.items():
        ranking = standings(rows)
        for row in rows:
            yield key, Point(found, row, None if row.noisy else ranking[row.device].ratio(row))


def _measured(row: Row) -> str:
    usual = {"recorder": "cupti" if row.device.startswith("cuda") else "wall", "cache": "cold"}
    return ", ".join(getattr(row, name) for name, value in usual.items() if getattr(row, name) not in ("", value))


def _case(key: CaseKey, found: _Found) -> CaseHistory:
    operation, case, dtype, precision, device, measured = key
    lines = [Line(*each) for each in found.lines.items()]
    return CaseHistory(operation, case, dtype, precision, device, measured, list(found.runs.values()), lines)


def timed_repeatedly(cases: Iterable[CaseHistory]) -> list[CaseHistory]:
    """The cases and lines that at least two runs timed."""
    kept = [replace(each, lines=[line for line in each.lines if len(line.points) > 1]) for each in cases]
    return [each for each in kept if each.lines]
