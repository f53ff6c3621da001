"""Who follows a run: progress, rows as they are known, cases as they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suite.problem.operation import Operation
from suite.results.row import Row


@dataclass(frozen=True)
class Step:
    """What a run does next, where that takes a while."""

    operation: str
    case: str
    doing: str
    """`checking triton/persistent`, for example."""
    done: int
    """Rows that are finished, of `total`."""
    total: int


class Observer:
    """Does nothing; a subclass overrides what it is interested in."""

    def step(self, step: Step) -> None:
        """Called before something that takes a while."""

    def store(self, operation: Operation, rows: Sequence[Row]) -> None:
        """Called with each row once it is checked, and again with its times."""

    def case_finished(self, operation: Operation, rows: Sequence[Row]) -> None:
        """Called with all rows of a case of which some row is new in this run."""
