"""Variants of the truth by operation: the usual mistakes, which explain a wrong result.

A file has the name of its operation and a function `variants`. An operation without a file has only the variants of
`suite/checking/general_variants.py`, which hold for every operation.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from suite.problem.variant import Variants


def find(operation: str) -> Variants | None:
    """Return the function `variants` of the operation's file; None if there is none."""
    found: Variants | None = getattr(_file(operation), "variants", None)
    return found


def columns(operation: str) -> int | None:
    """Return the operation's `COLUMNS`: the largest number of examined columns of a large result; None for all."""
    found: int | None = getattr(_file(operation), "COLUMNS", None)
    return found


def _file(operation: str) -> ModuleType | None:
    name = f"{__name__}.{operation}"
    is_there = operation.isidentifier() and importlib.util.find_spec(name) is not None
    return importlib.import_module(name) if is_there else None
