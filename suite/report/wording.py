"""Formats numbers and names for readers."""

from __future__ import annotations

from suite.results.render import number
from suite.results.row import Row

UNITS = ((1e6, "s"), (1e3, "ms"))


def duration(us: float | None) -> str:
    """A time such as `178.9 us`, `2.692 ms`, `1.204 s`; empty for None."""
    if us is None:
        return ""
    for size, unit in UNITS:
        if us >= size:
            return f"{number(us / size, 4)} {unit}"
    return f"{number(us, 4)} us"


def ratio(value: float | None) -> str:
    """A ratio of speeds with three decimals, or with three digits if it is at least 10 or below 0.1."""
    if value is None:
        return ""
    return f"{value:.3f}" if 0.1 <= value < 10 else number(value, 3)


def interval(row: Row) -> str:
    """The 95% interval of `vs_best`: `1.008 to 1.014`, or `no interval`."""
    if row.vs_best_low is None or row.vs_best_high is None:
        return "no interval"
    return f"{ratio(row.vs_best_low)} to {ratio(row.vs_best_high)}"


def rate(row: Row) -> str:
    """The rate of the resource that limits the row: `4.43 TB/s` or `768 TFLOP/s`."""
    if row.limit.startswith("arithmetic") and row.tflops:
        return f"{number(row.tflops, 3)} TFLOP/s"
    if row.gb_per_s is None:
        return ""
    return f"{number(row.gb_per_s / 1e3, 3)} TB/s" if row.gb_per_s >= 1e3 else f"{number(row.gb_per_s, 3)} GB/s"


def percent_of_limit(row: Row) -> str:
    """The share of the limit that the row reaches: `92%`; empty if no limit is known."""
    return "" if row.of_limit is None else f"{number(100 * row.of_limit, 2)}%"
