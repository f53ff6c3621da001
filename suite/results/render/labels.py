"""Shortens the names of cases and dtypes: `M=N=K=4096`, `bf16`."""

from __future__ import annotations

from suite.numerics.formats import SHORT
from suite.results.row import Row


def short_case(case: str) -> str:
    """`M=4096,N=4096,K=4096,causal` as `M=N=K=4096,causal`: neighbours of equal size are joined."""
    parts: list[tuple[str, str]] = []
    for part in case.split(","):
        name, equals, value = part.partition("=")
        if equals and value.isdecimal() and parts and parts[-1][1] == value:
            parts[-1] = (f"{parts[-1][0]}={name}", value)
        else:
            parts.append((name, value))
    return ",".join(f"{name}={value}" if value else name for name, value in parts)


def short_dtype(row: Row) -> str:
    """A short name of dtype and arithmetic: `bf16`, `tf32`, `fp8 fast`."""
    dtype = SHORT.get(row.dtype, row.dtype)
    if row.precision == "ieee":
        return dtype
    return row.precision if row.precision == "tf32" else f"{dtype} {row.precision}"
