"""The operations. A file here is an operation: `ops/matmul.py` defines `OP`, and the rest finds it by that name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from suite.core.errors import UsageError
from suite.problem.operation import Operation

TEACHING_ORDER = ("vector_add", "matrix_add", "sigmoid", "matmul", "attention")


@cache
def names() -> tuple[str, ...]:
    """Every operation, the ones a course takes first in front."""
    found = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    rank = {name: position for position, name in enumerate(TEACHING_ORDER)}
    return tuple(sorted(found, key=lambda name: (rank.get(name, len(rank)), name)))


def get(name: str) -> Operation:
    """The operation called `name`. Raises `UsageError` naming the ones there are."""
    if name not in names():
        raise UsageError(f"unknown operation {name!r}; there are {', '.join(names())}, or all")
    op = importlib.import_module(f"suite.ops.{name}").OP
    if not isinstance(op, Operation) or op.name != name:
        raise TypeError(f"suite/ops/{name}.py must define OP, an Operation named {name!r}")
    return op
