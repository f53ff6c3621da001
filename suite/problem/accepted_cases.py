"""The telling cases that an implementation of a case can take: those without further operands, or all.

Imports no framework: a process has none before it prepares one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suite.problem.case import Case
    from suite.problem.telling_case import Declared


def added_operands(op: Declared, case: Case) -> int:
    """Return how many operands the options of a case add to those of a plain one."""
    return len(op.operands(case)) - len(op.operands(replace(case, options=()))) if case.options else 0


def cases_for(op: Declared, case: Case, *, first: bool, device_type: str, added: bool = False) -> dict[str, Case]:
    """Return the telling cases for an implementation of `case`, in its dtype and precision.

    Those with operands that only other options add are left out, since the implementation may not take them, unless
    `added`: a user's file has no other implementation for them.
    """
    found = op.telling_cases(case.dtype, case.precision, first=first, device_type=device_type)
    if added:
        return dict(found)
    most = added_operands(op, case)
    return {name: each for name, each in found.items() if added_operands(op, each) <= most}
