"""Puts the rows that failed before all others. Every table for people has this order; CSV files keep the plan's."""

from __future__ import annotations

from collections.abc import Iterable

from suite.results.row import Row, Status


def severity(row: Row) -> int:
    """Sort key of a row: 0 if it is wrong, 1 if it failed otherwise, 2 if it did not fail."""
    if row.status is Status.WRONG:
        return 0
    return 1 if row.failed else 2


def wrong_first(rows: Iterable[Row]) -> list[Row]:
    """The rows in the order of their severity, otherwise in the given order."""
    return sorted(rows, key=severity)
