"""Loads the runs of a report: their rows, with further values that plots and tables need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from suite.core.errors import UsageError
from suite.diff.load import Side, load
from suite.results.dimensions import options_of
from suite.results.groups import cases, is_timed, standings
from suite.results.resume import ENVIRONMENT
from suite.results.row import Row


@dataclass(frozen=True)
class Entry:
    """A row and its origin. `table` is the name of a folder inside the run's, or empty for the run's own tables."""

    row: Row
    run: str
    table: str
    device: str
    """Name of the device, such as `NVIDIA H200`."""
    ratio: float | None = None
    """`vs_best`; None if the row, or the vendor row that it refers to, is noisy."""
    ranked: bool = False
    """True if its time may be compared with that of others of its case (`results/groups.py`)."""
    price_per_hour: float | None = None
    """The price of an hour of the device, from the reader."""

    @property
    def framework(self) -> str:
        return self.row.implementation.partition("/")[0]

    @cached_property
    def dims(self) -> dict[str, int]:
        """The sizes in the row's case: `{"M": 64, "N": 64}`."""
        return {name: int(value) for name, value in self._parts if self._is_size(name, value)}

    @cached_property
    def options(self) -> str:
        """The parts of the case that are no sizes: `layout=nt`, `causal`, `axis=0`."""
        return ",".join("=".join(filter(None, part)) for part in self._parts if not self._is_size(*part))

    @cached_property
    def _parts(self) -> list[tuple[str, str]]:
        return [(name, value) for name, _, value in (part.partition("=") for part in self.row.case.split(","))]

    def _is_size(self, name: str, value: str) -> bool:
        """True if a part of the case is a size. `axis=0` is a number, but an option."""
        return value.isdecimal() and all(name != option.name for option in options_of(self.row.operation))

    @property
    def arithmetic(self) -> str:
        """The dtype and precision, without `ieee`: `bfloat16`, `float32 tf32`."""
        return self.row.dtype if self.row.precision == "ieee" else f"{self.row.dtype} {self.row.precision}"

    @property
    def flops(self) -> float:
        """The flops that the operation needs; 0 if they are unknown."""
        return (self.row.tflops or 0.0) * (self.row.device_us or 0.0) * 1e6

    @property
    def bytes(self) -> float:
        """The bytes that the operation needs to move; 0 if they are unknown."""
        return (self.row.gb_per_s or 0.0) * (self.row.device_us or 0.0) * 1e3

    @property
    def cost(self) -> float | None:
        """The cost of a million calls in turn, which take as many seconds as one call takes microseconds."""
        if self.price_per_hour is None or self.row.device_us is None or not self.timed:
            return None
        return self.row.device_us * self.price_per_hour / 3600.0

    @property
    def tflop_per_unit(self) -> float | None:
        """The arithmetic of the operation for a unit of the price's currency, in 10^12 flops."""
        if not self.price_per_hour or self.row.tflops is None or not self.timed:
            return None
        return self.row.tflops * 3600.0 / self.price_per_hour

    @property
    def timed(self) -> bool:
        """True if the row has a possible time: it agrees and is native."""
        return is_timed(self.row)

    @property
    def case_name(self) -> str:
        """The case as text: `matmul M=64,N=64,K=64 float32 tf32`."""
        return f"{self.row.operation} {self.row.case} {self.arithmetic}"


@dataclass(frozen=True)
class Part:
    """The tables of one folder. `name` is that of a folder inside the run's, or empty for the run's own."""

    name: str
    path: Path
    environment: dict[str, Any]
    entries: Sequence[Entry]

    @property
    def on_its_device(self) -> Sequence[Entry]:
        """The rows of the GPU if there are any, else all rows. Rows of the GPU's host are only for comparison."""
        return [entry for entry in self.entries if entry.row.device != "cpu"] or self.entries


@dataclass(frozen=True)
class Run:
    """A results folder with the folders of results directly below it, or one table."""

    label: str
    path: Path
    parts: Sequence[Part]

    @property
    def entries(self) -> list[Entry]:
        return [entry for part in self.parts for entry in part.entries]

    @property
    def on_its_device(self) -> list[Entry]:
        """The rows of the GPU if the run has any, else all rows. Rows of the GPU's host are only for comparison."""
        return [entry for entry in self.entries if entry.row.device != "cpu"] or self.entries

    @property
    def environment(self) -> dict[str, Any]:
        return self.parts[0].environment

    @property
    def device(self) -> str:
        return device_name(self.environment)

    @property
    def peaks(self) -> dict[str, Any]:
        """The datasheet's peaks of the device from the environment record; empty if it has none."""
        found = self.environment.get("device", {}).get("peaks")
        return found if isinstance(found, dict) else {}


def device_name(environment: dict[str, Any]) -> str:
    return str(environment.get("device", {}).get("name") or "unknown device")


def load_runs(given: Sequence[Path | Side]) -> list[Run]:
    """The runs at paths or of rows in memory, each with a label of its own.

    Raises `UsageError` for a path without results and for a damaged table.
    """
    paths = [each.path if isinstance(each, Side) else each for each in given]
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError(f"{', '.join(map(str, paths))}: a run is given twice; give each once")
    sides = [_sides(each) for each in given]
    labels = _labels(paths, [found[0][1] for found in sides])
    return [_run(label, path, found) for label, path, found in zip(labels, paths, sides, strict=True)]


def priced(runs: Sequence[Run], prices: Sequence[float]) -> list[Run]:
    """Return the runs with the price of an hour of their device: one for all of them, or one each.

    Raises `UsageError` for another number of prices, or one below 0.
    """
    if len(prices) not in (1, len(runs)) or min(prices) < 0:
        raise UsageError(f"price-per-hour: give one price, or one for each of the {len(runs)} runs; got {prices}")
    each = prices if len(prices) == len(runs) else list(prices) * len(runs)
    return [_priced(run, price) for run, price in zip(runs, each, strict=True)]


def _priced(run: Run, price: float) -> Run:
    parts = [
        replace(part, entries=[replace(entry, price_per_hour=price) for entry in part.entries]) for part in run.parts
    ]
    return replace(run, parts=parts)


def holds_results(path: Path) -> bool:
    """False for a folder without tables, of its own or in folders directly below it that have a record."""
    records = path.glob(f"*/{ENVIRONMENT}")
    return not path.is_dir() or any(path.glob("*.csv")) or any(any(each.parent.glob("*.csv")) for each in records)


def _sides(given: Path | Side) -> list[tuple[str, Side]]:
    """The pairs (name, tables) of a folder and of the folders in it that have an environment record and tables."""
    if isinstance(given, Side):
        if not given.rows:
            raise UsageError(f"{given.path}: no results here: it has no row")
        return [("", given)]
    path, found = given, []
    if not path.is_dir() or any(path.glob("*.csv")):
        found.append(("", load(path)))
    for record in sorted(path.glob(f"*/{ENVIRONMENT}")) if path.is_dir() else []:
        if any(record.parent.glob("*.csv")):
            found.append((record.parent.name, load(record.parent)))
    if not any(side.rows for _, side in found):
        raise UsageError(f"{path}: no results here: give a folder that `compare` wrote, or one of its tables (.csv)")
    return found


def _labels(paths: Sequence[Path], sides: Sequence[Side]) -> list[str]:
    """The names of the devices if they differ, else the names of the folders if they differ, else the paths."""
    for names in (
        [side.device or path.stem for path, side in zip(paths, sides, strict=True)],
        [path.resolve().stem for path in paths],
    ):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def entries_of(rows: Iterable[Row], run: str, table: str, devices: Mapping[str, str]) -> list[Entry]:
    """The entries of rows, case by case. `devices` has the name of the device for each value of the column."""
    entries = []
    for group in cases(rows):
        found = standings(group)
        ranked = {id(row) for each in found.values() for row in each.ranked}
        for row in group:
            ratio = found[row.device].ratio(row)
            entries.append(Entry(row, run, table, devices[row.device], ratio, id(row) in ranked))
    return entries


def _run(label: str, path: Path, sides: Sequence[tuple[str, Side]]) -> Run:
    parts = []
    for name, side in sides:
        names = {row.device: side.device_of(row) or row.device or "unknown device" for row in side.rows.values()}
        entries = entries_of(side.rows.values(), label, name, names)
        parts.append(Part(name, side.path, side.environment or {}, entries))
    return Run(label, path, parts)
