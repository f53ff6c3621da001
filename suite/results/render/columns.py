"""Which columns people are shown, with heads, units and number formats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suite.core.text import one_line
from suite.results.groups import fastest
from suite.results.row import Row

INTERVAL = "interval"
"""The one shown column that is no field of `Row`: half the width of the 95% interval of device_us, in percent."""


@dataclass(frozen=True)
class Column:
    """A shown column: the field of `Row`, its head with the unit, and its significant digits."""

    field: str
    head: str
    digits: int = 3


SHOWN = (
    Column("device_us", "device us", 4),
    Column(INTERVAL, "+- %", 2),
    Column("vs_best", "vs best vendor"),
    Column("of_limit", "of limit"),
    Column("gb_per_s", "GB/s", 4),
    Column("tflops", "TFLOP/s", 4),
    Column("latency_us", "latency us", 4),
    Column("dispatch_us", "dispatch us", 3),
    Column("to_device_us", "to device us", 4),
    Column("to_device_pinned_us", "pinned", 4),
    Column("to_host_us", "to host us", 4),
    Column("to_host_pinned_us", "pinned", 4),
    Column("program_us", "program us", 4),
    Column("program_pinned_us", "pinned", 4),
    Column("first_call_s", "first call s", 3),
    Column("compile_s", "compile s", 3),
    Column("compile_warm_s", "cached s", 3),
    Column("joules", "joules", 3),
    Column("gflop_per_joule", "GFLOP/J", 3),
    Column("peak_bytes", "extra bytes", 4),
    Column("error_ratio", "error / bound", 3),
    Column("max_ulp", "max ulp", 3),
)


def number(value: Any, digits: int) -> str:
    """`value` with `digits` significant digits, with an exponent only where it would not fit a column.

    None, NaN and the empty text become the empty text.
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return ""
    value = float(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -4 <= magnitude < 9:
        return f"{value:.{max(0, digits - 1)}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


@dataclass(frozen=True)
class CaseTable:
    """The rows of one case as cells of text, not yet escaped. `fastest` is the row to be marked, or None."""

    rows: Sequence[Row]
    cells: Sequence[dict[str, str]]
    """For each row its cells by `Column.field`."""
    columns: tuple[Column, ...]
    """Those of `SHOWN` in which some row has a number."""
    notes: Sequence[str]
    """For each row its reason and flags; empty if it has none."""
    fastest: Row | None

    @classmethod
    def of(cls, rows: Sequence[Row]) -> CaseTable:
        """The table of `rows`, which are all of one case."""
        cells = [_cells(row) for row in rows]
        used = tuple(column for column in SHOWN if any(each[column.field] for each in cells))
        return cls(rows, cells, used, [_note(row) for row in rows], fastest(rows))


def _cells(row: Row) -> dict[str, str]:
    cells = {
        column.field: number(getattr(row, column.field), column.digits) for column in SHOWN if column.field != INTERVAL
    }
    return {**cells, INTERVAL: _half_width(row)}


def _half_width(row: Row) -> str:
    if not row.device_us or row.device_us_low is None or row.device_us_high is None:
        return ""
    return number(50 * (row.device_us_high - row.device_us_low) / row.device_us, 2)


def _note(row: Row) -> str:
    return one_line("; ".join(filter(None, (row.reason, row.flags))))
