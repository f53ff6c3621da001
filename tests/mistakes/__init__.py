"""Wrong kernels, each by one small change of a right kernel, with the reason that a diagnosis has to give.

Each file holds a list `KERNELS`. `tests/checking/test_reasons.py` runs them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Mistake:
    """A wrong kernel, the case that shows it, and the regular expression that its diagnosis has to match.

    says: empty if the numbers do not tell the mistake; then no reason may be given.
    """

    name: str
    operation: str
    shape: tuple[int, ...]
    kernel: Callable[..., Any]
    says: str
    dtype: str = "float32"
    inputs: str = "normal"
    options: Mapping[str, bool | str] = field(default_factory=dict)
    prepare: Callable[..., tuple[Tensor, ...]] = lambda *inputs: inputs
    """Changes the drawn inputs."""

    @property
    def id(self) -> str:
        return f"{self.operation}-{self.name.replace(' ', '_')}"


def mistakes() -> list[Mistake]:
    """Return the mistakes of all files."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return [each for file in files for each in importlib.import_module(f"mistakes.{file.stem}").KERNELS]
