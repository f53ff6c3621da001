"""Wrong kernels that are derived from the suite's own implementations, to measure what the check catches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A wrong kernel. line: the implementation that it is derived from. make: returns the function."""

    operation: str
    line: str
    name: str
    make: Callable[[], Callable[..., Any]]
