"""Ranks rows against a user's file that declares itself a vendor's library (`VENDOR`), if it is the fastest vendor.

The rows of the tree are timed in turns with the tree's vendor, and a user's file in turns with that vendor's row in
another process. The ratio of two such rows is the quotient of their ratios to it. Without a vendor in the tree, it is
the ratio of their times.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from suite.results.noise import noise, reference_of
from suite.results.row import Row, Status


@dataclass(frozen=True)
class _Ratio:
    """A ratio with its 95% interval."""

    value: float
    low: float
    high: float

    def over(self, other: _Ratio) -> _Ratio:
        """The quotient, with an interval that covers both."""
        return _Ratio(self.value / other.value, self.low / other.high, self.high / other.low)


def rank_against_own(rows: Sequence[Row], external: Collection[str], limit: float) -> None:
    """Set `vs_best` of the rows of one case, in place, if a vendor among the files `external` is the fastest vendor.

    A file whose interval is wider than `limit` counts only if the tree has no vendor.
    """
    timed = [row for row in rows if row.status is Status.OK and row.device_us]
    in_tree = [row for row in timed if row.implementation not in external]
    is_ranked = reference_of(in_tree) is not None
    own = [row for row in timed if row.implementation in external and row.vendor]
    own = [row for row in own if not is_ranked or (_to_vendor(row) is not None and noise(row) <= limit)]
    best = min(own, key=lambda row: row.device_us or math.inf, default=None)
    if best is None or (is_ranked and (best.vs_best or 0.0) <= 1.0):
        return
    ratios = [(row, _to_vendor(row) if is_ranked else _speed(row)) for row in timed]
    reference = {row.key: ratio for row, ratio in ratios}[best.key]
    for row, ratio in ratios:
        found = None if ratio is None or reference is None else ratio.over(reference)
        row.vs_best, row.vs_best_low, row.vs_best_high = (
            (None, None, None) if found is None else (found.value, found.low, found.high)
        )
    best.vs_best = best.vs_best_low = best.vs_best_high = 1.0


def _to_vendor(row: Row) -> _Ratio | None:
    """The row's ratio to the tree's vendor."""
    if not row.vs_best:
        return None
    return _Ratio(row.vs_best, row.vs_best_low or row.vs_best, row.vs_best_high or row.vs_best)


def _speed(row: Row) -> _Ratio | None:
    """Calls in a microsecond."""
    if not row.device_us:
        return None
    return _Ratio(
        1 / row.device_us, 1 / (row.device_us_high or row.device_us), 1 / (row.device_us_low or row.device_us)
    )
