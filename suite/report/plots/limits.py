"""Finds the limits of the rows of a plot, each with a name. Rows of another arithmetic have another limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from suite.implementations import builtin
from suite.report.load import Entry

Limits = dict[str, list[list[float]]]
"""The points (size, rate) of each limit by its name."""


def limits_of(by_size: Mapping[int, Sequence[Entry]], rate: Callable[[Entry], float]) -> Limits:
    """The limits of rows by size: `float32 limit`, and `6 x bfloat16 limit` for rows that multiply in that way."""
    found: dict[str, dict[int, list[float]]] = {}
    for size, entries in sorted(by_size.items()):
        for entry in entries:
            if entry.row.of_limit:
                values = found.setdefault(f"{_resource(entry)} limit", {}).setdefault(size, [])
                values.append(rate(entry) / entry.row.of_limit)
    return {name: [[size, _most_common(values)] for size, values in sizes.items()] for name, sizes in found.items()}


def _resource(entry: Entry) -> str:
    """The resource that limits a row: `memory`, or its arithmetic."""
    if entry.row.limit.startswith("memory"):
        return "memory"
    dtype, _, precision = entry.arithmetic.partition(" ")
    return _products(entry) or ("tf32" if precision == "tf32" else dtype)


def _products(entry: Entry) -> str:
    """The products that an implementation of the suite computes instead of those of the dtype; empty if none."""
    try:
        return builtin.find(entry.row.operation, entry.row.implementation).arithmetic or ""
    except LookupError:
        return ""


def _most_common(values: Sequence[float]) -> float:
    """The most common value up to rounding."""
    return Counter(float(f"{value:.4g}") for value in values).most_common(1)[0][0]
