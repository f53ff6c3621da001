"""Converts rows to a pandas DataFrame and back, for notebooks and analyses. The suite itself works on rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.results import dimensions
from suite.results.csv_file import read_rows
from suite.results.row import COLUMNS, Row

if TYPE_CHECKING:
    import pandas as pd


def frame(rows: Iterable[Row], environment: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """One column for each field of `Row`, then one for each dimension and option.

    Enumerations are text, missing numbers NaN or None. `attrs["environment"]` is the environment record.
    """
    from suite.results.notebook import ComparisonFrame

    rows = list(rows)
    table = ComparisonFrame([[_plain(getattr(row, name)) for name in COLUMNS] for row in rows], columns=list(COLUMNS))
    names = dimensions.names(rows)
    more = [dimensions.values(row, names) for row in rows]
    for column, name in enumerate(names):
        values = [each[column] for each in more]
        table[name] = [int(value) for value in values] if all(value.isdecimal() for value in values) else values
    if environment is not None:
        table.attrs["environment"] = dict(environment)
    return table


def read_frame(path: Path) -> pd.DataFrame:
    """A results table as a DataFrame. Raises `ResultsError` as `read_rows` does."""
    return frame(read_rows(path))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
