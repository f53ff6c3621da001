"""Finds rows of committed results, and formats their numbers."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from suite.results.csv_file import read_rows
from suite.results.row import Row, Status
from validation.documents import ROOT

H200 = ROOT / "results" / "nvidia-h200"
H100 = ROOT / "results" / "nvidia-h100-80gb-hbm3"
RUNGS = "../nvidia-h100-80gb-hbm3/rungs"
"""The run of all lines on an H100, as a path from the folder of the H200."""


@cache
def rows(table: str) -> tuple[Row, ...]:
    """The rows of a table that agree, by its path below the results of the H200, without `.csv`."""
    return tuple(row for row in read_rows(H200 / f"{table}.csv") if row.status is Status.OK)


def of_case(table: str, case: str, dtype: str = "bfloat16", precision: str = "ieee") -> list[Row]:
    """The rows of one case."""
    return [row for row in rows(table) if (row.case, row.dtype, row.precision) == (case, dtype, precision)]


def row(table: str, name: str, case: str, dtype: str = "bfloat16", precision: str = "ieee") -> Row:
    """The row of an implementation, by its name in that table.

    Raises `SystemExit` if there is none.
    """
    for each in of_case(table, case, dtype, precision):
        if each.implementation == name:
            return each
    raise SystemExit(f"{table} has no row of {name}, {case}, {dtype}, {precision}")


def find(table: str, name: str, case: str, dtype: str = "bfloat16", precision: str = "ieee") -> Row | None:
    """The row of an implementation; None if the table has none."""
    return next((each for each in of_case(table, case, dtype, precision) if each.implementation == name), None)


def vendor(found: Iterable[Row]) -> Row:
    """The fastest vendor row."""
    return min((each for each in found if each.vendor and each.device_us), key=lambda each: each.device_us or 0.0)


def us(row: Row | None) -> str:
    """`171.3`; from 1,000 us on without a fraction."""
    return _time(row.device_us) if row else ""


def _time(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000.0 else f"{value:.1f}"


def ms(value: float | None) -> str:
    """A time in us as `1.25` ms."""
    return "" if value is None else f"{value / 1000.0:#.3g}"


def rate(row: Row | None) -> str:
    """TFLOP/s."""
    value = row.tflops if row else None
    return "" if value is None else f"{value:.0f}" if value >= 100.0 else f"{value:.1f}"


def ratio(row: Row | None, digits: int = 3) -> str:
    """`vs_best`."""
    return "" if row is None or row.vs_best is None else f"{row.vs_best:.{digits}f}"


def us_and_ratio(row: Row | None) -> str:
    """`177.5 (1.102)`."""
    return f"{us(row)} ({ratio(row)})" if row else ""


def span(values: Sequence[float], digits: int = 3) -> tuple[str, str]:
    """The least and the largest value."""
    return f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"


def command(table: str) -> str:
    """The command that made a table, from the environment record beside it."""
    folder, name = (H200 / table).parent, Path(table).name
    record = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    return str(record["command"] if name in record["run"]["tables"] else record["earlier"][name]["command"])


def wrapped(command: str) -> str:
    """The command on lines of at most 110 characters."""
    return " \\\n    ".join(textwrap.wrap(command, 104, break_long_words=False, break_on_hyphens=False))
