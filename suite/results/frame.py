"""Converts rows to a pandas DataFrame and back, for notebooks and analyses. The suite itself works on rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from suite.core.errors import UsageError
from suite.results import dimensions
from suite.results.csv_file import read_rows
from suite.results.row import COLUMNS, TYPES, Row

if TYPE_CHECKING:
    import pandas as pd

IDENTITY = ("operation", "case", "dtype", "precision", "implementation")
"""Columns that a DataFrame must have to be converted to rows."""


def frame(rows: Iterable[Row], environment: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """One column for each field of `Row`, then one for each dimension and option.

    Enumerations are text, missing numbers NaN or None. `attrs["environment"]` is the environment record.
    """
    from suite.results.notebook import ComparisonFrame

    rows = list(rows)
    table = ComparisonFrame([[_plain(getattr(row, name)) for name in COLUMNS] for row in rows], columns=list(COLUMNS))
    more = dimensions.columns(rows)
    for name in more[0] if more else ():
        values = [each[name] for each in more]
        table[name] = [int(value) for value in values] if all(value.isdecimal() for value in values) else values
    if environment is not None:
        table.attrs["environment"] = dict(environment)
    return table


def read_frame(path: Path) -> pd.DataFrame:
    """A results table as a DataFrame. Raises `ResultsError` as `read_rows` does."""
    return frame(read_rows(path))


def rows_of(table: pd.DataFrame) -> list[Row]:
    """The rows of a DataFrame that `frame` made, or of some of its rows. Raises `UsageError` for another DataFrame."""
    missing = [name for name in IDENTITY if name not in table.columns]
    if missing:
        raise UsageError(f"the frame has no column {', '.join(missing)}: give one of suite.compare, with its columns")
    names = [name for name in COLUMNS if name in table.columns]
    return [
        Row(**{name: _typed(name, value) for name, value in zip(names, values, strict=True)})
        for values in table[names].itertuples(index=False, name=None)
    ]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _typed(name: str, value: Any) -> Any:
    """A cell of a DataFrame converted from the type of pandas to that of the field of `Row`."""
    kinds = get_args(TYPES[name])
    if not kinds:
        return bool(value) if TYPES[name] is bool else int(value) if TYPES[name] is int else str(value)
    return None if value is None or value != value else kinds[0](value)
