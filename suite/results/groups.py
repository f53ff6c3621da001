"""Groups rows by case, and finds the fastest row of a case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from suite.results.row import Row, Status


def cases(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows grouped by case, in the order of their first row."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.case_key, []).append(row)
    return list(groups.values())


def fastest(rows: Sequence[Row]) -> Row | None:
    """The fastest row of a case that agrees and is not noisy, on the device of its first row.

    None if fewer than two rows were timed there, or if they were timed by different recorders.
    """
    timed = [r for r in rows if r.status is Status.OK and r.device_us is not None and r.device == rows[0].device]
    if len(timed) < 2 or len({row.recorder for row in timed}) != 1:
        return None
    return min((row for row in timed if not row.noisy), key=lambda row: row.device_us or math.inf, default=None)
