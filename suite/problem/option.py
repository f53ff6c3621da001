"""Options: parameters of an operation besides size, dtype and precision, such as a causal mask."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | str


@dataclass(frozen=True)
class Option:
    """One option, declared by an operation with literals only: the command line reads it without importing torch.

    name: as in `Operation.case(..., name=value)` and, with dashes, on the command line. values: all values, the plain
    one first; (False, True) for a switch. about: the meaning in one line for `--help`. every: a given size, or a family
    of inputs, runs every value and not only the plain one.
    """

    name: str
    values: tuple[Value, ...]
    about: str
    every: bool = False

    @property
    def is_switch(self) -> bool:
        return all(isinstance(value, bool) for value in self.values)

    @property
    def flag(self) -> str:
        """The spelling on the command line: `--causal/--no-causal`, `--layout`."""
        name = self.name.replace("_", "-")
        return f"--{name}/--no-{name}" if self.is_switch else f"--{name}"
