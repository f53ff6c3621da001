"""Mutants that are right: why each computes the same, or what the contract allows."""

from __future__ import annotations

from fnmatch import fnmatchcase

from validation.mutation import Mutant

EQUIVALENT: dict[tuple[str, str, str], str] = {}
"""Reasons by patterns of the operation, the line and the mutant's name."""


def reason_of(mutant: Mutant) -> str:
    """Return why a mutant is right; empty if that is not known."""
    for (operation, line, name), reason in EQUIVALENT.items():
        escaped = name.replace("[", "[[]")
        if fnmatchcase(mutant.operation, operation) and mutant.line == line and fnmatchcase(mutant.name, escaped):
            return reason
    return ""
