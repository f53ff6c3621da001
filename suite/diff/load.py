"""Reads one side of a comparison: a results folder or one table, with the environment record beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.core.errors import ResultsError, UsageError
from suite.core.files import read_text
from suite.core.text import one_line
from suite.results.csv_file import read_rows
from suite.results.resume import EARLIER, ENVIRONMENT
from suite.results.row import Row
from suite.results.run_folder import LATEST

Key = tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """One of the two runs, BASE or NEW. `environment` is None if the folder has no environment record."""

    path: Path
    rows: dict[Key, Row]
    environment: dict[str, Any] | None = None

    @property
    def device(self) -> str | None:
        """Name of the device of the run; None if it is not known."""
        return None if self.environment is None else str(self.environment["device"]["name"])

    def device_of(self, row: Row) -> str | None:
        """Name of the device that `row` ran on: that of the run, or the host of its GPU."""
        if self.environment is None or row.device != "cpu" or self.environment["device"].get("type") == "cpu":
            return self.device
        host = self.environment.get("host")
        return str(host.get("name")) if isinstance(host, dict) else None

    def gpu_of(self, row: Row) -> str:
        """The UUID of the GPU that ran `row`; empty on a CPU, and if it is not known, as for a resumed run."""
        if row.gpu or row.device == "cpu" or self.environment is None:
            return row.gpu
        earlier = _mapping(self.environment.get(EARLIER))  # records of tables that the last run left in the folder
        record = _mapping(earlier.get(row.operation, self.environment))
        return "" if "resumed_utc" in record else str(_mapping(record.get("device")).get("uuid") or "")


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def row_key(row: Row) -> Key:
    """The values that identify a row in both runs. GPUs of the same name count as one device, whatever their index."""
    return (*row.case_key, row.implementation, row.device.partition(":")[0])


def load(path: Path) -> Side:
    """The rows of a results folder or of one table (.csv). Raises `UsageError` if it cannot be read."""
    folder, tables = _tables(path)
    rows: dict[Key, Row] = {}
    for table in tables:
        try:
            found = read_rows(table)
        except ResultsError as error:
            raise UsageError(one_line(error)) from error
        for number, row in enumerate(found, 1):
            damage = row.damage or ("there is another row like it" if row_key(row) in rows else "")
            if damage:
                raise UsageError(f"{table}: not a results table, or a damaged one: row {number}: {one_line(damage)}")
            rows[row_key(row)] = row
    return Side(path, rows, _environment(folder / ENVIRONMENT))


def _tables(path: Path) -> tuple[Path, list[Path]]:
    """The folder of the environment record, and the tables."""
    try:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        folder, tables = (path, sorted(path.glob("*.csv"))) if path.is_dir() else (path.parent, [path])
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if not tables:
        latest = path / LATEST
        hint = f"; its last run is {latest}" if latest.is_dir() else ""
        raise UsageError(f"{path}: no results here: the folder holds no .csv{hint}")
    return folder, tables


def _environment(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(read_text(path))
        if not isinstance(found["device"]["name"], str):
            raise TypeError("the name of the device is not a text")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable environment record: {one_line(repr(error))}") from error
    return found
