"""The callbacks of a run: its progress, each row once it is known, each case once it is finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suite.problem.operation import Operation
from suite.results.row import Row


@dataclass(frozen=True)
class Step:
    """The next step of a run that takes a while."""

    operation: str
    case: str
    doing: str
    """A description of the step, such as `checking triton/persistent`."""
    done: int
    """The number of finished rows, out of `total`."""
    total: int


class Observer:
    """Does nothing. A subclass overrides the methods that it needs."""

    def step(self, step: Step) -> None:
        """Called before a step that takes a while."""

    def store(self, operation: Operation, rows: Sequence[Row]) -> None:
        """Called with each row once it is checked, and again with its times."""

    def case_finished(self, operation: Operation, rows: Sequence[Row]) -> None:
        """Called with all rows of a case if at least one of them is new in this run."""
