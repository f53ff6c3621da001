"""Compares the two times of a row: of one call on an idle device with a cold cache, and of calls back to back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from suite.results.groups import is_timed
from suite.results.row import Row


def rows_with_both_times(rows: Sequence[Row]) -> list[Row]:
    """The rows with a time of single calls and one of calls back to back, without the noisy ones."""
    return [row for row in rows if is_timed(row) and row.sustained_us and not row.noisy]


def order_differs(rows: Sequence[Row]) -> list[str]:
    """A sentence for each pair of rows of one case that changes places between the two times.

    A pair counts if its 95% intervals are apart by both times, and neither row is noisy.
    """
    found = []
    for one, other in combinations(rows_with_both_times(rows), 2):
        if one.device != other.device:
            continue
        alone, loaded = _before(one, other, "device_us"), _before(one, other, "sustained_us")
        if alone * loaded < 0:
            first, second = (one, other) if alone > 0 else (other, one)
            found.append(
                f"the order differs: {first.implementation} is faster than {second.implementation} by device_us "
                f"({first.device_us:,.4g} and {second.device_us:,.4g} us), and slower by sustained_us "
                f"({first.sustained_us:,.4g} and {second.sustained_us:,.4g} us)"
            )
    return found


def _before(one: Row, other: Row, column: str) -> int:
    """1 if `one` is faster by `column`, -1 if `other` is, 0 if their intervals overlap or are unknown."""
    (low, high), (other_low, other_high) = (
        (getattr(row, f"{column}_low"), getattr(row, f"{column}_high")) for row in (one, other)
    )
    if None in (low, high, other_low, other_high):
        return 0
    return int(high < other_low) - int(other_high < low)
