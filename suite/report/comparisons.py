"""Compares runs side by side: pairs of rows that are in the first run and in a later one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from suite.diff.interval import Estimate, as_ratio
from suite.diff.load import row_key
from suite.report.load import Entry, Run


@dataclass(frozen=True)
class Pair:
    """One implementation on one case in two runs. `ratio` is the speed in the second run relative to the first."""

    base: Entry
    new: Entry
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """The rows of two runs that have ranked times in both."""

    base: str
    new: str
    pairs: Sequence[Pair]

    @property
    def middle(self) -> float:
        """The median of the ratios."""
        return statistics.median(pair.ratio for pair in self.pairs)

    @property
    def range(self) -> tuple[float, float]:
        ratios = [pair.ratio for pair in self.pairs]
        return min(ratios), max(ratios)


def comparisons(runs: Sequence[Run]) -> list[Comparison]:
    """The comparison of each later run with the first. A run without common rows is left out."""
    found = []
    for other in runs[1:]:
        base = {_key(entry): entry for entry in runs[0].entries if entry.ranked}
        matches = [(base[_key(entry)], entry) for entry in other.entries if entry.ranked and _key(entry) in base]
        pairs = [_pair(*match) for match in matches if match[0].row.recorder == match[1].row.recorder]
        if pairs:
            found.append(Comparison(runs[0].label, other.label, pairs))
    return found


def _key(entry: Entry) -> tuple[str, ...]:
    return (entry.table, *row_key(entry.row))


def _pair(base: Entry, new: Entry) -> Pair:
    then, now = (
        Estimate.from_interval(entry.row.device_us or math.nan, entry.row.device_us_low, entry.row.device_us_high)
        for entry in (base, new)
    )
    ratio = then - now
    known = math.isfinite(ratio.down) and math.isfinite(ratio.up)
    ends = (as_ratio(ratio.low), as_ratio(ratio.high)) if known else (None, None)
    return Pair(base, new, as_ratio(ratio.value), *ends)
