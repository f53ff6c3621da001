"""Options: parameters of an operation besides size, dtype and precision, such as a causal mask."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | str | int
MOST = 2**63 - 1
"""The largest integer that a kernel can be given."""


@dataclass(frozen=True)
class Option:
    """One option, declared by an operation with literals only: the command line reads it without importing torch.

    name: as in `Operation.case(..., name=value)` and, with dashes, on the command line. values: all values, the plain
    one first; (False, True) for a switch. about: the meaning in one line for `--help`. every: a given size, or a family
    of inputs, runs every value and not only the plain one. integers: every integer from 1 to MOST is a value too; those
    among `values` stand for them where each value is tried. beyond: implementations take only the plain value, unless
    they name the option in OPTIONS_BEYOND; then only families and telling cases that name it have another value.
    """

    name: str
    values: tuple[Value, ...]
    about: str
    every: bool = False
    integers: bool = False
    beyond: bool = False

    @property
    def is_switch(self) -> bool:
        return all(isinstance(value, bool) for value in self.values)

    @property
    def valid(self) -> str:
        """The values in words: `nn, tn, nt, tt`; `none, or an integer from 1 to 2^63 - 1`."""
        return (
            f"{self.values[0]}, or an integer from 1 to 2^63 - 1" if self.integers else ", ".join(map(str, self.values))
        )

    def accepts(self, value: object) -> bool:
        """True for a value of the option; an integer may be a number or a text of digits without leading zeros."""
        return value in self.values or (self.integers and _is_positive(str(value)))

    def named(self, text: str | None) -> Value:
        """The value that a label has as `text`; the plain one for None and for any other text."""
        found = next((value for value in self.values if str(value) == text), text)
        return found if found is not None and self.accepts(found) else self.values[0]

    def others(self, value: Value) -> tuple[Value, ...]:
        """The values that may stand for `value` by mistake: all others, or of integers the plain one and the next."""
        if not self.integers or value == self.values[0]:
            return tuple(each for each in self.values if each != value)
        return self.values[0], *(str(near) for near in (int(value) - 1, int(value) + 1) if near > 0)

    @property
    def flag(self) -> str:
        """The spelling on the command line: `--causal/--no-causal`, `--layout`."""
        name = self.name.replace("_", "-")
        return f"--{name}/--no-{name}" if self.is_switch else f"--{name}"


def _is_positive(text: str) -> bool:
    """True for the usual spelling of an integer from 1 to MOST."""
    return text.isascii() and text.isdecimal() and text[0] != "0" and int(text) <= MOST
