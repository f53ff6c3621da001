"""Compares runs side by side: pairs of rows that are in the first run and in a later one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from suite.diff.interval import Estimate, as_ratio
from suite.diff.load import row_key
from suite.report.load import Entry, Run
from suite.report.ranking import CaseResult, ranked_cases


@dataclass(frozen=True)
class Pair:
    """One implementation on one case in two runs. `ratio` is the speed in the second run relative to the first."""

    base: Entry
    new: Entry
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Change:
    """A case whose fastest implementation is `base` in the first run and `new` in the other.

    In each run the 95% intervals of the two are apart. `base_ratio` and `new_ratio` are the time of the other over that
    of the winner, in the run that it wins.
    """

    base: Entry
    new: Entry
    base_ratio: float
    new_ratio: float


@dataclass(frozen=True)
class Comparison:
    """The rows of two runs that have ranked times in both, and their cases."""

    base: str
    new: str
    pairs: Sequence[Pair]
    cases: int = 0
    """The number of cases that have a winner in both."""
    changes: Sequence[Change] = ()
    """Those whose winner changes."""

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
            winners = _common_cases(runs[0], other)
            changes = [change for pair in winners if (change := _change(*pair)) is not None]
            found.append(Comparison(runs[0].label, other.label, pairs, len(winners), changes))
    return found


def _common_cases(base: Run, new: Run) -> list[tuple[CaseResult, CaseResult]]:
    """The results of each case that has a winner in both runs."""

    def won(run: Run) -> dict[tuple[str, ...], CaseResult]:
        results = ranked_cases(run.on_its_device)
        return {(each.first.table, *each.first.row.case_key): each for each in results if each.fastest is not None}

    before = won(base)
    return [(before[key], result) for key, result in won(new).items() if key in before]


def _change(base: CaseResult, new: CaseResult) -> Change | None:
    """The change of the winner between two results of one case; None if it stays, or if intervals overlap."""
    first, other = base.fastest, new.fastest
    if first is None or other is None:
        return None
    base_ratio = _lead(base, first.row.implementation, other.row.implementation)
    new_ratio = _lead(new, other.row.implementation, first.row.implementation)
    return Change(first, other, base_ratio, new_ratio) if base_ratio and new_ratio else None


def _lead(result: CaseResult, winner: str, other: str) -> float | None:
    """The time of `other` over that of `winner`; None if their intervals are not apart."""
    rows = {row.implementation: row for row in result.standing.ranked}
    ahead, behind = rows.get(winner), rows.get(other)
    if ahead is None or behind is None or ahead.device_us_high is None or behind.device_us_low is None:
        return None
    if not ahead.device_us or not behind.device_us or ahead.device_us_high >= behind.device_us_low:
        return None
    return behind.device_us / ahead.device_us


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
