"""A case: one problem, small and hashable, as the columns of a row name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from suite.numerics import formats
from suite.problem.option import Value
from suite.problem.source import Source


@dataclass(frozen=True)
class Case:
    """One problem: an operation, a size, a dtype, a precision, options, a family of inputs.

    dims: dimensions by name, in the operation's order. options: (name, value) of the options that differ from the plain
    value, in the operation's order. source: the file that defines the operation, if it is a user's. ranks: how many
    processes compute it together. `Operation.case` makes cases; it fills in omitted values.
    """

    operation: str
    dims: tuple[tuple[str, int], ...]
    dtype: str = "float32"
    precision: str = "ieee"
    options: tuple[tuple[str, Value], ...] = ()
    inputs: str = "normal"
    source: Source | None = None
    ranks: int = 1

    def __getitem__(self, dim: str) -> int:
        return dict(self.dims)[dim]

    def option(self, name: str, plain: Any = None) -> Any:
        """Return the value of an option; `plain` if the case does not set it."""
        return dict(self.options).get(name, plain)

    @property
    def label(self) -> str:
        """The column `case`: `M=512,N=512,K=512`, then what is not plain: `,causal`, `,inputs=nan`, `,ranks=2`."""
        parts = [f"{name}={size}" for name, size in self.dims]
        parts += [name if value is True else f"{name}={value}" for name, value in self.options]
        if self.inputs != "normal":
            parts.append(f"inputs={self.inputs}")
        if self.ranks != 1:
            parts.append(f"ranks={self.ranks}")
        return ",".join(parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.dims)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of an input."""
        return formats.element_bytes(self.dtype)
