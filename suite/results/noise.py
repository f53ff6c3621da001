"""Decides which rows are noisy. Their times are kept, and ranked only where their intervals decide (`groups.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from suite.results.row import Row, Status

MAX_NOISE = 0.05
"""Default of `--max-noise`: half the width of the interval, relative to the time, above which a row is noisy."""
CONTRADICTION = (
    "the time and the ratio to the best vendor disagree on which is faster: "
    "the machine's speed changed while the case was timed"
)


def noise(row: Row) -> float:
    """Half the width of the 95% interval of device_us, divided by device_us; infinity if there is no interval."""
    if not row.device_us or row.device_us_low is None or row.device_us_high is None:
        return math.inf
    return (row.device_us_high - row.device_us_low) / 2 / row.device_us


def reference_of(rows: Iterable[Row]) -> Row | None:
    """The vendor row that `vs_best` refers to, among the rows of one case on one device."""
    exact = (row for row in rows if row.vendor and row.vs_best == row.vs_best_low == row.vs_best_high == 1.0)
    return next(exact, None)


def mark_noisy(rows: Sequence[Row], limit: float) -> None:
    """Set `noisy` of the timed rows of one case on one device, in place."""
    reference = reference_of(rows)
    for row in rows:
        if row.status is Status.OK and row.device_us is not None:
            contradiction = contradictory(row, reference, limit)
            row.noisy = contradiction or noise(row) > limit
            others = [text for text in row.remarks.split("; ") if text and text != CONTRADICTION]
            row.remarks = "; ".join([*([CONTRADICTION] if contradiction else []), *others])


def contradictory(row: Row, reference: Row | None, limit: float) -> bool:
    """True if the ratio of the medians and the median of the ratios name different winners, by more than `limit`.

    This happens if the machine's speed changed while the case was timed: the medians then belong to different moments.
    """
    if reference is None or not reference.device_us or not row.device_us or not row.vs_best:
        return False
    ratio_of_medians, median_of_ratios = math.log(reference.device_us / row.device_us), math.log(row.vs_best)
    return ratio_of_medians * median_of_ratios < 0 and abs(ratio_of_medians - median_of_ratios) > math.log1p(limit)
