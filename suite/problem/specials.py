"""Special numbers in one operand, the others as usual: `nan@1`, `infinity@0`, `subnormal@2`.

Every operation takes them, as families of inputs or as a part of one: a kernel may treat each of its operands in its
own way. The number after the @ is the position of the operand in the signature, from 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from suite.problem import numbers
from suite.problem.case import Case
from suite.problem.numbers import Values
from suite.problem.shape import Shape

Change = Callable[["torch.Tensor", Case, "torch.Generator"], "torch.Tensor"]


def _one_nan(operand: torch.Tensor, case: Case, source: torch.Generator) -> torch.Tensor:
    """A NaN at the end of a random row, in float16 at its beginning: kernels treat the tail and a first number apart.

    The family `nan` has it in any column.
    """
    numbers.put(operand, math.nan, (*_place(operand, source)[:-1], 0 if case.dtype == "float16" else -1))
    return operand


def _infinities(operand: torch.Tensor, case: Case, source: torch.Generator) -> torch.Tensor:
    """Two neighbours along the last axis: their sum is NaN or infinite, depending on the factors."""
    at = _place(operand, source)
    for step in (0, 1):
        *outer, last = at
        sign = 1.0 - 2.0 * numbers.index_below(2, source)
        numbers.put(operand, sign * math.inf, (*outer, (last + step) % max(operand.shape[-1], 1)))
    return operand


def _subnormals(operand: torch.Tensor, case: Case, source: torch.Generator) -> torch.Tensor:
    own = replace(case, dtype=str(operand.dtype).removeprefix("torch."))  # an operand may have another type
    return numbers.subnormals(tuple(operand.shape), own, source)


KINDS: dict[str, tuple[str, Change]] = {
    "nan": ("a NaN at the end of a row (float16: at its beginning)", _one_nan),
    "infinity": ("two infinities", _infinities),
    "subnormal": ("subnormal numbers", _subnormals),
}
"""The special numbers of an operand, in words, and the function that puts them there."""


def names(operands: int) -> list[str]:
    """Return all names for an operation of so many operands."""
    return [f"{kind}@{position}" for kind in KINDS for position in range(operands)]


def kind_of(name: str) -> str:
    """Return the kind of numbers: that of `nan@1` is `nan`. Other names are kinds of their own."""
    return name.partition("@")[0]


def position_of(name: str) -> int:
    """Return the position of the operand: that of `nan@1` is 1."""
    return int(name.partition("@")[2])


def known(name: str) -> bool:
    """True for a name such as `nan@1`."""
    kind, _, position = name.partition("@")
    return kind in KINDS and position.isdecimal()


def about(name: str) -> str:
    return f"{KINDS[kind_of(name)][0]} in operand {name.partition('@')[2]}"


def values(name: str, usual: Values) -> Values:
    """Draw by `usual`, and change one operand."""
    (_, change), position = KINDS[kind_of(name)], position_of(name)

    def drawn(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        found = usual(shapes, case, source)
        return tuple(change(each, case, source) if i == position else each for i, each in enumerate(found))

    return drawn


def _place(operand: torch.Tensor, source: torch.Generator) -> tuple[int, ...]:
    return tuple(numbers.index_below(size, source) for size in operand.shape)
