"""Merges the rows of several runs in fresh processes into one: medians, intervals over all runs, and their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from suite.results.row import Row, StoppedBy

MEDIANS = ("device_us", "vs_best", "latency_us", "dispatch_us", "graph_us", "clock_sm_mhz")
"""Columns that get the median over the runs. All others are those of the first run."""
INTERVALS = ("device_us", "vs_best")
"""Columns with an interval, which reaches from the lowest end of any run to the highest."""


def without_times(row: Row) -> Row:
    """A copy of `row` without its times, for another run that may measure fewer of them."""
    copy = replace(row, remarks="", clocks_lowered=False, sample_us=())
    for name in (*MEDIANS, *(f"{name}_{end}" for name in INTERVALS for end in ("low", "high"))):
        setattr(copy, name, None)
    return copy


def merged(runs: Sequence[Row]) -> dict[str, Any]:
    """The columns of one row that was timed in several runs, for `Row.fill`."""
    columns: dict[str, Any] = {"runs": len(runs), "samples": min(_known(runs, "samples"), default=None)}
    for name in MEDIANS:
        values = _known(runs, name)
        columns[name] = median(values) if values else None
    for name in INTERVALS:
        columns[f"{name}_low"] = min(_known(runs, f"{name}_low"), default=None)
        columns[f"{name}_high"] = max(_known(runs, f"{name}_high"), default=None)
    columns["sample_us"] = tuple(us for row in runs for us in row.sample_us)
    columns["spread"], columns["vs_best_spread"] = _spread(runs, "device_us"), _spread(runs, "vs_best")
    columns["remarks"] = "; ".join(dict.fromkeys(row.remarks for row in runs if row.remarks))
    columns["clocks_lowered"] = any(row.clocks_lowered for row in runs)
    if any(row.stopped_by is StoppedBy.BUDGET for row in runs):
        columns["stopped_by"] = StoppedBy.BUDGET
    return columns


def _known(runs: Sequence[Row], name: str) -> list[Any]:
    return [value for row in runs if (value := getattr(row, name)) is not None]


def _spread(runs: Sequence[Row], name: str) -> float | None:
    """The largest value divided by the smallest, minus 1."""
    values = _known(runs, name)
    return max(values) / min(values) - 1 if len(values) > 1 and min(values) > 0 else None
