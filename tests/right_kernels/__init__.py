"""Right kernels in the styles that people publish: none of them may be refused.

Each module has the kernels of one framework. A function is called `<operation>__<style>`; it has the signature of the
operation. `kernels()` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Right:
    """One right kernel."""

    operation: str
    style: str
    framework: str
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return f"{self.framework}-{self.operation}-{self.style}"


def kernels(module: ModuleType, framework: str) -> Iterator[Right]:
    """The kernels of a module, in their order."""
    for name, function in vars(module).items():
        operation, _, style = name.partition("__")
        if operation and style and not operation.startswith("_") and callable(function):
            yield Right(operation, style, framework, function)
