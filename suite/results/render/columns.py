"""The columns that tables for people show, with their heads, units and number formats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suite.core.text import one_line
from suite.results.groups import Standing, standing, standings
from suite.results.noise import noise
from suite.results.row import Bound, Row
from suite.results.two_times import order_differs

INTERVAL, NOISY = "interval", "noisy"
"""Two special columns. `interval` is half the width of the 95% interval of device_us in percent, and no field of `Row`.
`noisy` is not a number."""
RATIOS = ("vs_peer", "of_limit", "of_limit_at_clock")
"""Columns that are blank for noisy rows. So is `vs_best`, except for a noisy row that is ranked."""


@dataclass(frozen=True)
class Column:
    """A shown column: the field of `Row`, its head with the unit, and its significant digits."""

    field: str
    head: str
    digits: int = 3


SHOWN = (
    Column("device_us", "device us", 4),
    Column(INTERVAL, "+- %", 2),
    Column("samples", "n", 9),
    Column(NOISY, "noisy"),
    Column("vs_best", "vs best vendor"),
    Column("vs_peer", "vs best peer"),
    Column("of_limit", "of limit"),
    Column("of_limit_at_clock", "at clock"),
    Column("sustained_us", "sustained us", 4),
    Column("sustained_of_limit", "of limit"),
    Column("sustained_of_limit_at_clock", "at clock"),
    Column("sustained_clock_mhz", "MHz", 4),
    Column("sustained_power_w", "W", 3),
    Column("sustained_temperature_c", "C", 2),
    Column("occupancy", "occupancy", 2),
    Column("ncu_occupancy", "achieved", 2),
    Column("ncu_tensor", "tensor cores", 2),
    Column("ncu_dram", "DRAM", 2),
    Column("ncu_l2", "L2", 2),
    Column("ncu_issue", "issue slots", 2),
    Column("count_warps", "warps", 9),
    Column("count_loads", "loads", 9),
    Column("count_load_sectors", "sectors loaded", 9),
    Column("count_stores", "stores", 9),
    Column("count_store_sectors", "sectors stored", 9),
    Column("count_shared_loads", "shared loads", 9),
    Column("count_shared_stores", "shared stores", 9),
    Column("count_conflicts", "bank conflicts", 9),
    Column("count_atomics", "atomics", 9),
    Column("count_barriers", "barriers", 9),
    Column("count_divergent", "divergent branches", 9),
    Column("count_flops", "flops done", 9),
    Column("count_elements_loaded", "elements loaded", 9),
    Column("count_elements_stored", "elements stored", 9),
    Column("count_masked", "masked", 2),
    Column("gb_per_s", "GB/s", 4),
    Column("tflops", "TFLOP/s", 4),
    Column("bus_gb_per_s", "bus GB/s", 4),
    Column("product_us", "product us", 4),
    Column("communication_us", "transfer us", 4),
    Column("exposed_us", "exposed us", 4),
    Column("latency_us", "latency us", 4),
    Column("dispatch_us", "dispatch us", 3),
    Column("graph_us", "graph us", 3),
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
    Column("error_vs_vendor", "error vs vendor", 3),
)


SLOWED, LOW_CLOCK = "!", "^"
"""Marks of a time. `!`: heat or the power supply lowered the clocks. `^`: the clock was below NEAR_MAX."""
NEAR_MAX = 0.97
MAX_KERNELS_LENGTH = 100
"""The largest number of characters for the names of a row's kernels in a table."""


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
    magnitude = int(f"{value:.{max(0, digits - 1)}e}".partition("e")[2])  # after rounding: 0.9996 is 1.00
    if not -4 <= magnitude < 9:
        return f"{value:.{max(0, digits - 1)}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


@dataclass(frozen=True)
class CaseTable:
    """The rows of one case as cells of text, not yet escaped. `fastest` is the row to mark, or None."""

    rows: Sequence[Row]
    cells: Sequence[dict[str, str]]
    """The cells of each row by `Column.field`."""
    columns: tuple[Column, ...]
    """The columns of `SHOWN` in which at least one row has a number."""
    notes: Sequence[str]
    """The reason and remarks of each row; empty if it has none."""
    kernels: Sequence[str]
    """The kernels that each row ran; empty if they are unknown."""
    remarks: Sequence[str]
    """Lines under the table that explain its marks."""
    fastest: Row | None

    @classmethod
    def from_rows(cls, rows: Sequence[Row]) -> CaseTable:
        """The table of `rows`, which are all of one case."""
        found = standings(rows)
        cells = [_cells(row, found[row.device]) for row in rows]
        used = tuple(column for column in SHOWN if any(each[column.field] for each in cells))
        notes = [_note(row) for row in rows]
        return cls(rows, cells, used, notes, _kernels(rows), _remarks(rows), standing(rows).winner)


def _cells(row: Row, among: Standing) -> dict[str, str]:
    cells = {column.field: _cell(row, column) for column in SHOWN}
    cells["device_us"] = " ".join(filter(None, (cells["device_us"], clock_mark(row))))
    if among.ratio(row) is None:
        cells["vs_best"] = ""
    if row.noisy:
        cells |= dict.fromkeys(RATIOS, "")
    return cells


def clock_mark(row: Row) -> str:
    """The mark of a row whose clocks were low while it was timed; empty for any other row."""
    if row.device_us is None:
        return ""
    low = row.clock_of_max is not None and row.clock_of_max < NEAR_MAX
    return SLOWED if row.clocks_lowered else LOW_CLOCK if low else ""


def _remarks(rows: Sequence[Row]) -> list[str]:
    meanings = {
        SLOWED: "heat or the power supply lowered the clocks during this case: its times are too long",
        LOW_CLOCK: "the clock was below its highest during this case: kernels that draw less power run at a higher one",
    }
    found = []
    for mark, meaning in meanings.items():
        marked = [row for row in rows if clock_mark(row) == mark]
        if marked:
            clocks = sorted({f"{100 * row.clock_of_max:.0f}%" for row in marked if row.clock_of_max is not None})
            reasons = sorted({row.clock_reasons for row in marked if row.clock_reasons})
            facts = [f"{', '.join(clocks)} of the highest SM clock"] if clocks else []
            found.append(one_line(f"{mark} {meaning} ({'; '.join([*facts, *reasons])})"))
    return found + [one_line(text) for text in order_differs(rows)]


def _kernels(rows: Sequence[Row]) -> list[str]:
    texts = [one_line(row.kernels_run) for row in rows]
    return [text if len(text) <= MAX_KERNELS_LENGTH else f"{text[: MAX_KERNELS_LENGTH - 3]}..." for text in texts]


def _cell(row: Row, column: Column) -> str:
    if column.field == NOISY:
        return "noisy" if row.noisy else ""
    if column.field == INTERVAL:
        width = noise(row)
        return number(100 * width, column.digits) if math.isfinite(width) else ""
    if column.field == "samples":
        return f"{row.samples:,}" if row.samples else ""
    return number(getattr(row, column.field), column.digits)


def _note(row: Row) -> str:
    return one_line("; ".join(filter(None, (row.explanation, row.weakness, row.remarks, profile_text(row)))))


def profile_text(row: Row) -> str:
    """The findings of Nsight Compute on a row: `bound by tensor cores; busy: tensor cores 87%, DRAM 11%, ...`."""
    if row.bound_by is Bound.UNKNOWN:
        return ""
    units = {
        "tensor cores": row.ncu_tensor,
        "DRAM": row.ncu_dram,
        "L2": row.ncu_l2,
        "issue slots": row.ncu_issue,
    }
    busy = ", ".join(f"{name} {100 * share:.0f}%" for name, share in units.items() if share is not None)
    occupancy = "" if row.ncu_occupancy is None else f"achieved occupancy {100 * row.ncu_occupancy:.0f}%"
    stall = f"top stall {row.ncu_stall}" if row.ncu_stall else ""
    return "; ".join(filter(None, (f"bound by {row.bound_by}", f"busy: {busy}" if busy else "", occupancy, stall)))
