"""Decides the rate and the unit that a plot shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from suite.report.load import Entry

ARITHMETIC_INTENSITY = 20.0
"""Flops per byte from which a rate is shown in flops if no limit is known."""
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def counts_flops(entries: Sequence[Entry]) -> bool:
    """True if most rows are limited by arithmetic or, without a known limit, if the largest has many flops per byte."""
    limits = Counter(entry.row.limit.partition(" ")[0] for entry in entries if entry.row.limit)
    if limits:
        return limits.most_common(1)[0][0] == "arithmetic"
    largest = max(entries, key=lambda entry: entry.flops)
    return largest.flops > ARITHMETIC_INTENSITY * largest.bytes


def rate_function(in_flops: bool) -> Callable[[Entry], float]:
    """A function that returns a row's rate: its flops or bytes per second."""
    if in_flops:
        return lambda entry: (entry.row.tflops or 0.0) * 1e12
    return lambda entry: (entry.row.gb_per_s or 0.0) * 1e9


def unit_of(rates: Iterable[float], in_flops: bool) -> tuple[float, str]:
    """The largest unit in which the highest of `rates` is at least 1, as a number and a name: `(1e9, "GB/s")`."""
    highest = max(rates, default=0.0)
    size, prefix = next((each for each in PREFIXES if highest >= each[0]), (1.0, ""))
    return size, f"{prefix}{'FLOP' if in_flops else 'B'}/s"
