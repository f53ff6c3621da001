"""Prepares the tables of a page as data: columns with heads and values, which the page's script sorts and filters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from suite.report.comparisons import Comparison, Pair
from suite.report.load import Entry, Run
from suite.results.noise import noise
from suite.results.order import severity
from suite.results.row import Row

DIGITS, TIME_DIGITS = 4, 5
"""Significant digits of numbers in a page, and of times and their ratios. The CSV has all digits."""
TIMES = ("device_us", "vs_best")


@dataclass(frozen=True)
class Column:
    """A column of a page's table.

    `about` explains the head. `choices`: readers can filter by its values. `detail`: it is shown for one row at a time.
    `if_varied`: it is a detail if all rows have the same value.
    """

    head: str
    about: str
    value: Callable[[Any], Any]
    number: bool = False
    choices: bool = False
    detail: bool = False
    if_varied: bool = False
    digits: int = DIGITS


def _about(name: str) -> str:
    return str(Row.__dataclass_fields__[name].metadata["about"])


def _field(name: str, head: str, *, number: bool = True, detail: bool = False) -> Column:
    digits = TIME_DIGITS if name.startswith(TIMES) else DIGITS
    return Column(
        head, _about(name), lambda entry: getattr(entry.row, name), number=number, detail=detail, digits=digits
    )


def _half_width(entry: Entry) -> float | None:
    width = 100 * noise(entry.row)
    return width if math.isfinite(width) else None


def _status(entry: Entry) -> str:
    row = entry.row
    marks = [str(row.status)] + (["noisy"] if row.noisy else []) + (["suspect"] if row.suspect else [])
    marks += ["weak"] if row.is_weak else []
    return ", ".join(marks)


ROW_COLUMNS = (
    Column("implementation", "framework and variant", lambda entry: entry.row.implementation, choices=True),
    Column("operation", "what is computed", lambda entry: entry.row.operation, choices=True),
    Column("case", "sizes and options", lambda entry: entry.row.case),
    Column("dtype", "dtype, and precision where it is not ieee", lambda entry: entry.arithmetic, choices=True),
    Column("status", "ok, or what went wrong", _status, choices=True),
    _field("error_ratio", "error / bound"),
    _field("device_us", "device us"),
    Column("± %", "half the width of the 95% interval of device us", _half_width, number=True, digits=2),
    Column("vs best vendor", _about("vs_best"), lambda entry: entry.ratio, number=True, digits=TIME_DIGITS),
    _field("of_limit", "of limit"),
    _field("sustained_us", "sustained us"),
    _field("sustained_of_limit", "sustained of limit"),
    Column("run", "the run that the row belongs to", lambda entry: entry.run, choices=True, if_varied=True),
    Column("device", "where it ran", lambda entry: entry.device, choices=True, if_varied=True),
    Column("table", "the folder of its table", lambda entry: entry.table, choices=True, if_varied=True),
    _field("vs_peer", "vs best peer"),
    _field("gb_per_s", "GB/s"),
    _field("tflops", "TFLOP/s"),
    _field("latency_us", "latency us"),
    _field("dispatch_us", "dispatch us"),
    _field("graph_us", "graph us"),
    _field("joules", "joules"),
    _field("gflop_per_joule", "GFLOP/J"),
    Column(
        "cost of 10^6 calls", "what a million calls cost, at the price that was given", lambda x: x.cost, number=True
    ),
    Column("TFLOP a unit", "10^12 flops for a unit of the price's currency", lambda x: x.tflop_per_unit, number=True),
    _field("weak_bound", "weak bound"),
    _field("error_vs_vendor", "error vs vendor"),
    _field("bound_by", "bound by", number=False),
    _field("kernels_run", "kernels", number=False),
    Column("mode", "native, interpreted or emulated", lambda entry: str(entry.row.execution), detail=True),
    Column("vendor", "the vendor library behind it", lambda entry: entry.row.vendor, detail=True),
    _field("peer", "peer", number=False, detail=True),
    _field("reason", "reason", number=False, detail=True),
    _field("diagnosis", "diagnosis", number=False, detail=True),
    _field("weakness", "weakness", number=False, detail=True),
    _field("remarks", "remarks", number=False, detail=True),
    _field("config", "configuration", number=False, detail=True),
    _field("limit", "limit", number=False, detail=True),
    _field("device_us_low", "device us, low", detail=True),
    _field("device_us_high", "device us, high", detail=True),
    _field("vs_best_low", "vs best vendor, low", detail=True),
    _field("vs_best_high", "vs best vendor, high", detail=True),
    _field("samples", "samples", detail=True),
    _field("spread", "spread of the runs", detail=True),
    _field("threads", "threads", detail=True),
    _field("recorder", "recorder", number=False, detail=True),
    _field("cache", "L2 cache", number=False, detail=True),
    _field("program_us", "program us", detail=True),
    _field("program_pinned_us", "program us, pinned", detail=True),
    _field("first_call_s", "first call s", detail=True),
    _field("compile_s", "compile s", detail=True),
    _field("peak_bytes", "extra bytes", detail=True),
    _field("max_ulp", "max ulp", detail=True),
    _field("checked", "checked", number=False, detail=True),
    _field("occupancy", "occupancy", detail=True),
    _field("ncu_occupancy", "achieved occupancy", detail=True),
    _field("ncu_tensor", "tensor cores", detail=True),
    _field("ncu_dram", "DRAM", detail=True),
    _field("ncu_l2", "L2", detail=True),
    _field("ncu_issue", "issue slots", detail=True),
    _field("ncu_stall", "top stall", number=False, detail=True),
    _field("code", "code", number=False, detail=True),
    _field("compile_cache", "compile cache", number=False, detail=True),
    _field("clock_sm_mhz", "SM clock MHz", detail=True),
    _field("power_w", "power W", detail=True),
    _field("temperature_c", "temperature C", detail=True),
    _field("of_limit_at_clock", "of limit at this clock", detail=True),
    _field("sustained_us_low", "sustained us, low", detail=True),
    _field("sustained_us_high", "sustained us, high", detail=True),
    _field("sustained_clock_mhz", "sustained SM clock MHz", detail=True),
    _field("sustained_power_w", "sustained power W", detail=True),
    _field("sustained_temperature_c", "sustained temperature C", detail=True),
    _field("sustained_of_limit_at_clock", "sustained of limit at this clock", detail=True),
    _field("clock_reasons", "clocks", number=False, detail=True),
    _field("versions", "versions", number=False, detail=True),
)
PAIR_COLUMNS = (
    Column("implementation", "framework and variant", lambda each: each[1].new.row.implementation, choices=True),
    Column("runs", "the two runs", lambda each: each[0], choices=True, if_varied=True),
    Column("operation", "what is computed", lambda each: each[1].new.row.operation, choices=True),
    Column("case", "sizes and options", lambda each: each[1].new.row.case),
    Column("dtype", "dtype, and precision where it is not ieee", lambda each: each[1].new.arithmetic, choices=True),
    Column(
        "first us",
        "device us in the first run",
        lambda each: each[1].base.row.device_us,
        number=True,
        digits=TIME_DIGITS,
    ),
    Column(
        "other us",
        "device us in the other run",
        lambda each: each[1].new.row.device_us,
        number=True,
        digits=TIME_DIGITS,
    ),
    Column("first of limit", "of limit in the first run", lambda each: each[1].base.row.of_limit, number=True),
    Column("other of limit", "of limit in the other run", lambda each: each[1].new.row.of_limit, number=True),
    Column(
        "times as fast",
        "speed in the other run over that in the first",
        lambda each: each[1].ratio,
        number=True,
        digits=TIME_DIGITS,
    ),
    Column("low", "lower end of the ratio's 95% interval", lambda each: each[1].low, number=True, digits=TIME_DIGITS),
    Column("high", "upper end of the ratio's 95% interval", lambda each: each[1].high, number=True, digits=TIME_DIGITS),
)


def rows_table(runs: Sequence[Run]) -> dict[str, Any]:
    """Every row of every run. `severity` has the rows that failed, each with its place before all others."""
    entries = [entry for run in runs for entry in run.entries]
    failed = {place: severity(entry.row) for place, entry in enumerate(entries) if entry.row.failed}
    return _table(ROW_COLUMNS, entries) | {"severity": failed}


def pairs_table(found: Sequence[Comparison]) -> dict[str, Any]:
    """Every row that a run shares with the first."""
    pairs: list[tuple[str, Pair]] = [(f"{each.new} against {each.base}", pair) for each in found for pair in each.pairs]
    return _table(PAIR_COLUMNS, pairs)


def _table(columns: Iterable[Column], items: Sequence[Any]) -> dict[str, Any]:
    """The columns that have a value in some row. Texts are a list of distinct texts, and an index into it for each row.

    A single value stands for all rows.
    """
    shown = []
    for column in columns:
        values = [column.value(item) for item in items]
        if any(value not in (None, "") for value in values):
            entry: dict[str, Any] = {
                "head": column.head,
                "about": column.about,
                "detail": column.detail or (column.if_varied and len(set(values)) == 1),
            }
            if column.number:
                entry |= {"digits": column.digits, "values": [_short(value, column.digits) for value in values]}
                entry["whole"] = all(isinstance(value, int) for value in values if value is not None)
            else:
                texts = {text: place for place, text in enumerate(dict.fromkeys(values))}
                entry |= {"texts": list(texts), "values": [texts[value] for value in values]}
                entry["choices"] = column.choices and len(texts) > 1
            if len(set(map(str, entry["values"]))) == 1:
                entry["values"] = entry["values"][:1]
            shown.append(entry)
    return {"count": len(items), "columns": shown}


def _short(value: float | None, digits: int) -> float | int | str | None:
    """The number with `digits` significant digits. JSON has no infinity, so it becomes a text."""
    if value is None:
        return None
    if value in (float("inf"), float("-inf")) or value != value:
        return str(value)
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) else short
