"""Conversion of a DataFrame of `frame` back to rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from suite.core.errors import UsageError
from suite.results.row import COLUMNS, TYPES, Row

if TYPE_CHECKING:
    import pandas as pd

IDENTITY = ("operation", "case", "dtype", "precision", "implementation")
"""Columns that a DataFrame must have to be converted to rows."""


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


def _typed(name: str, value: Any) -> Any:
    """A cell of a DataFrame converted from the type of pandas to that of the field of `Row`."""
    kinds = get_args(TYPES[name])
    if not kinds:
        return bool(value) if TYPES[name] is bool else int(value) if TYPES[name] is int else str(value)
    return None if value is None or value != value else kinds[0](value)
