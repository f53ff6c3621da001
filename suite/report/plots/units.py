"""Decides whether the rate of a case is shown in flops or in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from suite.report.load import Entry

ARITHMETIC_INTENSITY = 20.0
"""Flops per byte from which a rate is shown in flops if no limit is known."""


def counts_flops(entries: Sequence[Entry]) -> bool:
    """True if most rows are limited by arithmetic or, without a known limit, if there are many flops per byte."""
    limits = Counter(entry.row.limit.partition(" ")[0] for entry in entries if entry.row.limit)
    if limits:
        return limits.most_common(1)[0][0] == "arithmetic"
    return all(entry.flops > ARITHMETIC_INTENSITY * entry.bytes for entry in entries)


def rate_function(in_flops: bool) -> tuple[Callable[[Entry], float], str]:
    """A function that returns a row's rate, and the unit."""
    if in_flops:
        return lambda entry: entry.row.tflops or 0.0, "TFLOP/s"
    return lambda entry: (entry.row.gb_per_s or 0.0) / 1e3, "TB/s"
