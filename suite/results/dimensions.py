"""The columns of a CSV that follow from the operation and the case: one for each dimension and option, and `inputs`.

They are for readers of the file; the suite itself reads `case`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from suite import ops
from suite.problem.option import Option
from suite.results.legacy import RENAMED
from suite.results.row import COLUMNS, Row

INPUTS, NORMAL = "inputs", "normal"
NAME = re.compile(r"[A-Za-z]\w{0,30}", re.ASCII)
UNUSABLE = frozenset((*COLUMNS, *RENAMED))
RESERVED = {"T": "T_"}
"""Column names for dimensions whose own name is an attribute of every DataFrame."""


def options_of(operation: str) -> tuple[Option, ...]:
    """The options of an operation; empty for a user's operation."""
    return ops.options(operation) if operation in ops.names() else ()


def names(rows: Iterable[Row]) -> list[str]:
    """The columns of all rows, in the order in which they come."""
    return list(dict.fromkeys(name for row in rows for name in _case_columns(row)))


def values(row: Row, names: Iterable[str]) -> list[str]:
    """The row's values in the columns `names`: sizes as digits, switches as `yes` or empty, other options as text.

    An option that the case does not name has its default, such as `layout=nn`.
    """
    found = _case_columns(row)
    return [found.get(name, "") for name in names]


def _case_columns(row: Row) -> dict[str, str]:
    plain = {option.name: "" if option.is_switch else str(option.values[0]) for option in options_of(row.operation)}
    given: dict[str, str] = {}
    for part in filter(None, row.case.split(",")):
        name, equals, value = part.partition("=")
        if NAME.fullmatch(name) and name not in UNUSABLE:
            given[name] = value if equals else "yes"
    inputs = given.pop(INPUTS, NORMAL)
    sizes = {name: value for name, value in given.items() if name not in plain}
    every = {**sizes, **plain, **{name: given[name] for name in plain if name in given}, INPUTS: inputs}
    return {RESERVED.get(name, name): value for name, value in every.items()}
