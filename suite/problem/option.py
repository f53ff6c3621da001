"""Options: parameters of an operation besides size, dtype and precision, such as a causal mask."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | str | int


@dataclass(frozen=True)
class Option:
    """One option, declared by an operation with literals only: the command line reads it without importing torch.

    name: as in `Operation.case(..., name=value)` and, with dashes, on the command line. values: all values, the plain
    one first; (False, True) for a switch. about: the meaning in one line for `--help`. every: a given size, or a family
    of inputs, runs every value and not only the plain one. integers: every positive integer is a value too; those among
    `values` stand for them where each value is tried. beyond: implementations take only the plain value, unless they
    name the option in OPTIONS_BEYOND; then only families and telling cases that name it have another value.
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
        """The values in words: `nn, tn, nt, tt`; `none, or a positive integer`."""
        return f"{self.values[0]}, or a positive integer" if self.integers else ", ".join(map(str, self.values))

    def accepts(self, value: object) -> bool:
        """True for a value of the option; an integer may be a number or a text without leading zeros."""
        text = str(value)
        return value in self.values or (self.integers and text.isdecimal() and text[0] != "0")

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
