"""The types of a comparison: pairs of rows, the change of each, and all changes of two runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from suite.core.text import one_line
from suite.diff.interval import Estimate
from suite.diff.load import Side
from suite.results.row import Row, Status


class Verdict(StrEnum):
    """The verdict on the change of a row, the worst first."""

    BROKEN = "BROKEN"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"
    FASTER = "FASTER"
    FIXED = "FIXED"
    SAME = "SAME"
    UNTIMED = "UNTIMED"


class Evidence(StrEnum):
    """The columns that a verdict was derived from; empty if there are no times."""

    NONE = ""
    TIME = "device_us"
    RANKED = "vs_best"
    BOTH = "both"


@dataclass(frozen=True)
class Pair:
    """A row that is in both runs."""

    base: Row
    new: Row
    incomparable: str = ""
    """Why the two times cannot be compared, or empty."""
    other_gpu: bool = False
    """True if two GPUs are known to have run the two rows."""

    @property
    def sides(self) -> tuple[tuple[str, Row], tuple[str, Row]]:
        return ("BASE", self.base), ("NEW", self.new)

    @property
    def timed(self) -> bool:
        """True if both have a time and the two can be compared."""
        return not self.incomparable and all(has_time(row) for _, row in self.sides)

    @property
    def ranked(self) -> bool:
        """True if both have vs_best with its interval."""
        return all(row.vs_best and row.vs_best_low and row.vs_best_high for _, row in self.sides)


@dataclass(frozen=True)
class Change:
    """The verdict on one row. `control` is the vendor implementation behind vs_best, or empty if it was not used."""

    base: Row
    new: Row
    verdict: Verdict
    ratio: Estimate | None = None
    evidence: Evidence = Evidence.NONE
    control: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diff:
    """The comparison of two runs."""

    base: Side
    new: Side
    threshold: float
    changes: tuple[Change, ...]

    @property
    def only_in_base(self) -> list[Row]:
        return [row for key, row in self.base.rows.items() if key not in self.new.rows]

    @property
    def only_in_new(self) -> list[Row]:
        return [row for key, row in self.new.rows.items() if key not in self.base.rows]

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows by verdict, including verdicts without rows."""
        counted = Counter(change.verdict for change in self.changes)
        return {verdict.value: counted[verdict] for verdict in Verdict}

    @cached_property
    def has_host_rows(self) -> bool:
        """True if there are both rows on a GPU and rows on its host."""
        return len({key[-1] for key in (*self.base.rows, *self.new.rows)}) > 1

    def name(self, row: Row) -> str:
        """The implementation's name: `jax`, or `jax on cpu` if there are rows on a GPU too."""
        on_host = self.has_host_rows and row.device == "cpu"
        return one_line(f"{row.implementation} on cpu" if on_host else row.implementation)

    @property
    def exit_status(self) -> int:
        """3 if a row is SLOWER or BROKEN, else 0."""
        return 3 if self.counts[Verdict.SLOWER] or self.counts[Verdict.BROKEN] else 0


def has_time(row: Row) -> bool:
    """True if `row` has a time that can be trusted."""
    return row.status is Status.OK and bool(row.device_us) and not row.suspect


def case_name(row: Row) -> str:
    """A case as text: `matmul M=64,N=64,K=64 float32 ieee`."""
    return one_line(" ".join(row.case_key))
