"""Shortens the names of cases and dtypes: `M=N=K=4096`, `bf16`; `case_title` is the one spelling of a row's case."""

from __future__ import annotations

from functools import cache

from suite import ops
from suite.numerics.formats import SHORT
from suite.results.row import Row


def short_case(case: str) -> str:
    """`M=4096,N=4096,K=4096,causal` as `M=N=K=4096,causal`: neighbouring dimensions of equal size are joined.

    Options are not joined: `M=1,N=1,axis=1` is `M=N=1,axis=1`.
    """
    parts: list[tuple[str, str]] = []
    options = _option_names()
    for part in case.split(","):
        name, equals, value = part.partition("=")
        if equals and value.isdecimal() and name not in options and parts and parts[-1][1] == value:
            parts[-1] = (f"{parts[-1][0]}={name}", value)
        else:
            parts.append((name, value))
    return ",".join(f"{name}={value}" if value else name for name, value in parts)


@cache
def _option_names() -> frozenset[str]:
    return frozenset(option.name for operation in ops.names() for option in ops.options(operation))


def short_dtype(row: Row) -> str:
    """A short name of dtype and arithmetic: `bf16`, `tf32`, `fp8 fast`."""
    dtype = SHORT.get(row.dtype, row.dtype)
    if row.precision == "ieee":
        return dtype
    return row.precision if row.precision == "tf32" else f"{dtype} {row.precision}"


def case_title(row: Row) -> str:
    """The operation, case and dtype of a row: `matmul M=N=K=4096 bf16`."""
    return f"{row.operation} {short_case(row.case)} {short_dtype(row)}"
