"""Renders the times of a function in three lines, for a Python prompt."""

from __future__ import annotations

from collections.abc import Sequence

from suite.core.text import one_line
from suite.results.render.columns import number
from suite.results.render.labels import case_title
from suite.results.row import Row


def timed_lines(rows: Sequence[Row]) -> list[str]:
    """Three lines on the first row, which was timed beside the others: its time, the others, how it was measured."""
    if not rows:
        return ["no times", "beside: nothing", "not measured"]
    own, *others = rows
    first = f"{case_title(own)} on {own.device}: {own.implementation} {_time(own)}"
    ratio = ""
    if own.vs_best is not None and not own.noisy:
        ratio = f"; vs best vendor {number(own.vs_best, 3)}{_interval(own.vs_best_low, own.vs_best_high, 3)}"
    second = f"beside: {', '.join(f'{each.implementation} {_time(each)}' for each in others) or 'nothing'}{ratio}"
    host = [
        f"{name} {number(us, 4)} us"
        for name, us in (("latency", own.latency_us), ("dispatch", own.dispatch_us))
        if us is not None
    ]
    parts = [f"{own.samples or 0} samples by {own.recorder or 'no recorder'}, cache {own.cache or 'unknown'}", *host]
    parts += filter(None, ("noisy: not ranked" if own.noisy else "", own.reason, own.remarks))
    return [one_line(line) for line in (first, second, "; ".join(parts))]


def _time(row: Row) -> str:
    if row.device_us is None:
        return "not timed"
    noisy = " noisy" if row.noisy else ""
    return f"{number(row.device_us, 4)} us{_interval(row.device_us_low, row.device_us_high, 4)}{noisy}"


def _interval(low: float | None, high: float | None, digits: int) -> str:
    return "" if low is None or high is None else f" ({number(low, digits)} to {number(high, digits)})"
