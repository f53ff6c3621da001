"""The implementations of an operation without files of `--with`: those of the tree, or of a user's reference."""

from __future__ import annotations

from suite.implementations import builtin, reference
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.problem.operation import Operation


def implementations(op: Operation) -> tuple[Implementation, ...]:
    """The implementations of the tree, or of the file that defines the operation."""
    return builtin.implementations(op.name) if op.source is None else reference.implementations(op)


def find(case: Case, name: str) -> Implementation:
    """The implementation of that name for `case`. Raises `LookupError` if there is none."""
    return builtin.find(case.operation, name) if case.source is None else reference.find(case, name)
