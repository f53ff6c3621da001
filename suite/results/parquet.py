"""Writes results tables as Parquet files beside the CSV files: with types, for tools that do not read CSV."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from suite.core.errors import UsageError
from suite.core.files import write_atomically
from suite.results.frame import frame
from suite.results.row import COLUMNS, TYPES, Row


def check() -> None:
    """Raise `UsageError` if no library that writes Parquet is installed."""
    if not _has_pyarrow():
        raise UsageError("--format parquet: pyarrow not installed: pip install pyarrow; or leave it out for CSV alone")


def write(folder: Path, rows: Sequence[Row]) -> None:
    """Write `<operation>.parquet` for each operation of `rows`. Raises `ResultsError` for a full disk."""
    for operation in dict.fromkeys(row.operation for row in rows):
        table = frame(row for row in rows if row.operation == operation)
        kinds = {name: _type(TYPES[name]) for name in COLUMNS}
        table = table.astype({name: kind for name, kind in kinds.items() if kind})
        contents = io.BytesIO()
        table.to_parquet(contents, index=False)
        write_atomically(folder / f"{operation}.parquet", contents.getvalue())


def _type(kind: object) -> str:
    """The pandas type of a column of numbers that may be missing; empty for any other column."""
    return {float | None: "float64", int | None: "Int64"}.get(kind, "")  # type: ignore[call-overload, no-any-return]


def _has_pyarrow() -> bool:
    try:
        return find_spec("pyarrow") is not None
    except ValueError:  # raised for a module that has no import specification
        return False
