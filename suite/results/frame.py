"""Rows as a pandas DataFrame, for notebooks and analyses. The suite itself works on rows."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.results.csv_file import read_rows
from suite.results.row import COLUMNS, Row

if TYPE_CHECKING:
    import pandas as pd


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """One column for each field of `Row`; enumerations as text, missing numbers as NaN or None."""
    import pandas as pd

    return pd.DataFrame([[_plain(getattr(row, name)) for name in COLUMNS] for row in rows], columns=list(COLUMNS))


def read_frame(path: Path) -> pd.DataFrame:
    """A results table as a DataFrame. Raises `ResultsError` as `read_rows` does."""
    return frame(read_rows(path))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
