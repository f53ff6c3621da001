"""Converts DataFrames of `suite.compare` to runs of a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from suite.core.errors import UsageError
from suite.diff.load import Side, row_key
from suite.results.frame_rows import rows_of

if TYPE_CHECKING:
    import pandas as pd


def side(frame: pd.DataFrame, number: int) -> Side:
    """The rows of a frame, with the environment record that it carries.

    `number` names the frame if several are from one device. Raises `UsageError` for a frame without results.
    """
    if not hasattr(frame, "columns"):
        raise UsageError(f"runs: {frame!r} is no result; give a frame of suite.compare, a folder or a table (.csv)")
    rows = {row_key(row): row for row in rows_of(frame)}
    if len(rows) < len(frame):
        raise UsageError(f"frame {number} has rows of several runs; give each run as a frame of its own")
    return Side(Path(f"frame-{number}"), rows, frame.attrs.get("environment"))
