"""Families of inputs: kinds of numbers and placements that break kernels, each declared in one line.

An operation declares its families once, `families = {"nan": family.nan((1025,)), ...}`; the parity tests and `compare
--inputs nan` use that declaration. An operation that needs numbers of its own passes `values`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from suite.numerics.formats import DOUBLE, DTYPES
from suite.problem import layouts, numbers, placement, specials
from suite.problem.numbers import Values
from suite.problem.option import Option, Value
from suite.problem.shape import Shape


@dataclass(frozen=True)
class Family:
    """Inputs of one kind.

    about: a description in one line, for `list`. values: draws the operands, dense and row-major, in the case's dtype.
    place: copies an operand, by its position in the signature, to a placement in memory, and returns a tensor of its
    shape. stored: counts the elements that a placed operand has in memory, without repetitions. shapes: sizes to run if
    none are given; empty for the operation's default cases. options: values to run, by option; for other options
    `Option.every` decides. dtypes: element types to run. needs_gpu: too large for a CPU. arguments: keyword arguments
    of the call that differ from the operation's.
    """

    about: str
    values: Values
    place: Callable[[torch.Tensor, int], torch.Tensor] = placement.as_drawn
    stored: Callable[[Shape, int], int] = placement.elements
    shapes: tuple[Shape, ...] = ()
    options: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = tuple(DTYPES)
    needs_gpu: bool = False
    arguments: Mapping[str, float] = field(default_factory=dict)

    def supports(self, dtype: str) -> bool:
        """True for a dtype of `dtypes`, and for float64 where float32 is one."""
        return dtype in self.dtypes or (dtype == DOUBLE and "float32" in self.dtypes)


NORMALS = numbers.per_operand(numbers.normals)


def normal() -> Family:
    return Family("random normal numbers; the operation's default sizes", NORMALS)


def sizes(*shapes: Shape) -> Family:
    return Family("sizes of one, primes, one below and one above a tile", NORMALS, shapes=shapes)


def long_thin(*shapes: Shape) -> Family:
    return Family("one dimension very long, another very short", NORMALS, shapes=shapes)


def empty(*shapes: Shape) -> Family:
    return Family("a dimension of 0: an empty result, or zeros", NORMALS, shapes=shapes)


def transposed(option: Option, *shapes: Shape) -> Family:
    """Inputs for every value of the option that selects which operands are stored transposed."""
    return Family(
        "each operand as it is and stored transposed", NORMALS, shapes=shapes, options={option.name: option.values}
    )


def strided_views(*shapes: Shape) -> Family:
    return Family("every second, third ... element of arrays of NaN", NORMALS, placement.strided, shapes=shapes)


def offset(*shapes: Shape) -> Family:
    return Family("one element off a multiple of 16 bytes", NORMALS, placement.misaligned, shapes=shapes)


def misaligned_rows(*shapes: Shape) -> Family:
    return Family("rows one element farther apart than they are long", NORMALS, placement.gapped_rows, shapes=shapes)


def broadcast(*shapes: Shape) -> Family:
    return Family(
        "one element, row or head repeated with a stride of 0",
        NORMALS,
        placement.repeated,
        placement.elements_of_repeated,
        shapes,
    )


def subnormal(*shapes: Shape, values: Values = numbers.per_operand(numbers.subnormals)) -> Family:  # noqa: B008
    return Family("numbers below the normal range, and results there", values, shapes=shapes)


def large(*shapes: Shape, values: Values = numbers.per_operand(numbers.extremes)) -> Family:  # noqa: B008
    return Family("the largest finite numbers, and sums beyond them", values, shapes=shapes)


def signed_zero(*shapes: Shape) -> Family:
    return Family(
        "0 and -0 among 1 and -1; a zero of either sign is right",
        numbers.per_operand(numbers.signed_zeros),
        shapes=shapes,
    )


def infinity(*shapes: Shape, values: Values = numbers.per_operand(numbers.some_infinite)) -> Family:  # noqa: B008
    return Family("infinities; NaN where inf - inf or 0 inf is computed", values, shapes=shapes)


def nan(*shapes: Shape, values: Values = numbers.per_operand(numbers.one_nan)) -> Family:  # noqa: B008
    return Family("NaN in one place; only results that depend on it may be NaN", values, shapes=shapes)


def spread(shape: Shape, *powers: int, values: Values = NORMALS) -> Family:
    return Family(
        "operands beyond the range of float16, and others as far below",
        numbers.spread(*powers, values=values),
        shapes=(shape,),
    )


def cancellation(*shapes: Shape, values: Values = numbers.opposite) -> Family:
    return Family("sums that are far smaller than their terms", values, shapes=shapes)


def huge(*shapes: Shape, options: Mapping[str, tuple[Value, ...]] | None = None) -> Family:
    return Family(
        "more than 2^31 elements; GPU only",
        NORMALS,
        shapes=shapes,
        options=options or {},
        dtypes=("float32", "bfloat16"),
        needs_gpu=True,
    )


def layout(text: str, dtypes: tuple[str, ...]) -> Family:
    """Normal numbers in the layout that `text` names (`suite/problem/layouts.py`)."""
    return Family("operands placed one by one", NORMALS, layouts.place(text), layouts.stored(text), dtypes=dtypes)


def special(name: str, normal: Family) -> Family:
    """Special numbers in one operand, which `name` tells (`suite/problem/specials.py`)."""
    return Family(specials.about(name), specials.values(name, normal.values), dtypes=normal.dtypes)


def combined(normal: Family, parts: Sequence[Family]) -> Family:
    """Return the family with the numbers, the placement and the arguments of all parts, where they differ from normal.

    Where two parts change the same property, the last one counts.
    """
    about = "; ".join(part.about for part in parts)
    found = replace(normal, about=about, dtypes=tuple(normal.dtypes), shapes=())
    for part in parts:
        if part.values not in (normal.values, NORMALS):
            found = replace(found, values=part.values)
        if part.place is not placement.as_drawn:
            found = replace(found, place=part.place, stored=part.stored)
        found = replace(
            found,
            shapes=found.shapes or part.shapes,
            options={**found.options, **part.options},
            dtypes=tuple(dtype for dtype in found.dtypes if dtype in part.dtypes),
            needs_gpu=found.needs_gpu or part.needs_gpu,
            arguments={**found.arguments, **part.arguments},
        )
    return found
