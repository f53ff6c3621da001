"""Ranks the rows of each case, and compares the best with the best vendor library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from suite.report.load import Entry
from suite.report.style import sort_key
from suite.results.groups import Standing, standing
from suite.results.row import Row
from suite.results.unranked import unranked_reason

LEVEL = 0.02
"""Relative difference within which two rows are level. Runs of the same code differ by up to 1.4% in `vs_best`
(results/nvidia-h200/proof/repeatability.md)."""


class Outcome(StrEnum):
    """The outcome of a case: its best implementation that is no vendor's, compared with the best that is one."""

    FASTER = "faster"
    LEVEL = "level"
    SLOWER = "slower"
    UNDECIDED = "undecided"
    NONE = ""


@dataclass(frozen=True)
class CaseResult:
    """The rows of one case on one device, ranked by the rule of `results/groups.py`."""

    entries: Sequence[Entry]
    standing: Standing

    @property
    def rows(self) -> list[Row]:
        return [entry.row for entry in self.entries]

    @cached_property
    def fastest(self) -> Entry | None:
        """The winner; None if there is nothing to compare it with, or if a noisy row may be faster."""
        return self._entry(self.standing.winner)

    @cached_property
    def vendor(self) -> Entry | None:
        """The best vendor library; None if no other row was timed, or if a noisy vendor's row may be faster."""
        return self._entry(self.standing.vendor) if self.standing.comparable else None

    @cached_property
    def other(self) -> Entry | None:
        """The fastest ranked row that is no vendor's and no peer's, and has a ratio."""
        if not self.standing.comparable:
            return None
        return self._entry(self.standing.best(lambda row: row.is_ours and bool(self.standing.ratio(row))))

    def _entry(self, row: Row | None) -> Entry | None:
        return next((entry for entry in self.entries if entry.row is row), None)

    @property
    def first(self) -> Entry:
        return self.entries[0]

    @property
    def outcome(self) -> Outcome:
        """The outcome. It is decided if the whole 95% interval of `vs_best` lies above, below or within `LEVEL`."""
        if self.other is None or self.vendor is None:
            return Outcome.NONE
        low, high = self.other.row.vs_best_low, self.other.row.vs_best_high
        if low is None or high is None:
            return Outcome.UNDECIDED
        if low > 1 + LEVEL:
            return Outcome.FASTER
        if high < 1 / (1 + LEVEL):
            return Outcome.SLOWER
        return Outcome.LEVEL if low >= 1 / (1 + LEVEL) and high <= 1 + LEVEL else Outcome.UNDECIDED

    @property
    def is_contest(self) -> bool:
        """True if a vendor library and another implementation were timed, noisy or not."""
        timed = [entry.row for entry in self.entries if entry.timed]
        return any(row.vendor for row in timed) and any(row.is_ours for row in timed)

    @property
    def unranked(self) -> str:
        """The reason why the case has no fastest row; empty if it has one."""
        return "" if self.fastest else unranked_reason(self.standing)

    @property
    def failed(self) -> int:
        """The number of rows that are wrong or failed otherwise."""
        return sum(entry.row.failed for entry in self.entries)

    def best_of(self, framework: str) -> Entry | None:
        """The framework's fastest ranked row. Rows of peers are left out."""
        own = self.standing.best(lambda row: row.implementation.partition("/")[0] == framework and not row.peer)
        return self._entry(own)


def ranked_cases(entries: Iterable[Entry]) -> list[CaseResult]:
    """The cases of `entries` in order. Each device, run and folder of tables has cases of its own."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        key = (entry.run, entry.table, entry.row.device, *entry.row.case_key)
        groups.setdefault(key, []).append(entry)
    return [CaseResult(group, standing([entry.row for entry in group])) for group in groups.values()]


@dataclass(frozen=True)
class Tally:
    """The number of cases of one operation in one run by outcome."""

    run: str
    operation: str
    faster: dict[str, int]
    """Number of cases in which an implementation beats the best vendor library, by framework."""
    level: int
    undecided: int
    slower: int
    not_compared: int
    """Number of cases without a ranked vendor library or without another ranked implementation."""

    @property
    def cases(self) -> int:
        return sum(self.faster.values()) + self.level + self.undecided + self.slower + self.not_compared


def tallies(results: Iterable[CaseResult]) -> list[Tally]:
    """One entry for each run and operation with a case in which a vendor library and an implementation were timed.

    Each counts all cases of its operation. Entries of one operation follow each other.
    """
    found = []
    for (run, operation), cases in _by_operation(results):
        if not any(case.is_contest for case in cases):
            continue
        outcomes = [case.outcome for case in cases]
        faster: dict[str, int] = {}
        for case in cases:
            if case.outcome is Outcome.FASTER and case.other is not None:
                faster[case.other.framework] = faster.get(case.other.framework, 0) + 1
        faster = {name: faster[name] for name in sorted(faster, key=sort_key)}
        counts = [outcomes.count(kind) for kind in (Outcome.LEVEL, Outcome.UNDECIDED, Outcome.SLOWER, Outcome.NONE)]
        found.append(Tally(run, operation, faster, *counts))
    return found


@dataclass(frozen=True)
class Group:
    """The cases of one operation in one run. `frameworks` are those with a ratio to a vendor library."""

    run: str
    operation: str
    frameworks: Sequence[str]
    results: Sequence[CaseResult]


def grouped(results: Iterable[CaseResult]) -> list[Group]:
    """The cases by operation and run. Operations without any time are left out."""
    groups = []
    for (run, operation), cases in _by_operation(results):
        if not any(entry.timed for case in cases for entry in case.entries):
            continue
        names = {entry.framework for case in cases for entry in case.entries if entry.ranked and entry.ratio}
        groups.append(Group(run, operation, sorted(names, key=sort_key), cases))
    return groups


def _by_operation(results: Iterable[CaseResult]) -> list[tuple[tuple[str, str], list[CaseResult]]]:
    """The cases of each run and operation, in the order of the first case of their operations."""
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for result in results:
        groups.setdefault((result.first.run, result.first.row.operation), []).append(result)
    order = list(dict.fromkeys(operation for _, operation in groups))
    return sorted(groups.items(), key=lambda item: order.index(item[0][1]))
