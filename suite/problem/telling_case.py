"""Defines `TellingCase`, and `Declared`: the declarations of an operation from which its telling cases follow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from suite.core.errors import UsageError
from suite.problem.case import Case
from suite.problem.option import Option, Value
from suite.problem.shape import Shape

if TYPE_CHECKING:
    from suite.problem.family import Family

SIZES = (1, 31, 64, 257, 1024)
"""Sizes of a dimension in the covering set: 1; odd, prime and below a tile; a tile; odd, prime, above a tile and longer
than two; and a multiple of every tile."""
MOST_ELEMENTS, MOST_FLOPS = 2**19, 2**25
"""Largest number of elements of an operand or result, and of operations, in a case of the covering set."""
FEW = 8
"""Factor on both for a case of one long dimension."""
TILE = 64
"""An axis is long if it is longer than this."""
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class TellingCase:
    """A telling case, which stands for one case in every dtype and precision that its family of inputs supports.

    name: a word for the mistake that the case shows; it appears in the column `checked` and in reasons. inputs: the
    name of the family. options: the values that differ from the operation's defaults. first: True for a case that the
    suite's own implementations run too, each in one of the dtypes.
    """

    name: str
    shape: Shape
    inputs: str = "normal"
    options: Mapping[str, Value] = field(default_factory=dict)
    first: bool = True


class Declared(Protocol):
    """The declarations of an operation that its telling cases follow from."""

    @property
    def options(self) -> tuple[Option, ...]: ...
    @property
    def families(self) -> Mapping[str, Family]: ...
    @property
    def telling(self) -> tuple[TellingCase, ...]: ...
    @property
    def telling_left_out(self) -> tuple[str, ...]: ...
    @property
    def usual_shape(self) -> Shape: ...
    def covered_sizes(self) -> Mapping[str, Sequence[int]]: ...
    def shape_of_sizes(self, sizes: Mapping[str, int]) -> Shape: ...
    def named_dims(self, shape: Shape) -> Mapping[str, int]: ...
    def validate(self, dims: Mapping[str, int]) -> None: ...
    def case(
        self, shape: Shape, dtype: str = ..., precision: str | None = ..., *, inputs: str = ..., **options: Value | None
    ) -> Case: ...
    def operands(self, case: Case) -> tuple[Shape, ...]: ...
    def operand_dtypes(self, case: Case) -> tuple[str, ...]: ...
    def output_shape(self, case: Case) -> Shape: ...
    def output_shapes(self, case: Case) -> tuple[Shape, ...]: ...
    def flops(self, case: Case) -> int: ...
    def telling_cases(
        self, dtype: str, precision: str, *, first: bool = ..., device_type: str = ...
    ) -> Mapping[str, Case]: ...


def options_with_equal_operands(op: Declared) -> Iterator[dict[str, tuple[Value, ...]]]:
    """Groups of values of each option with which a call has as many operands, the plain ones first."""
    groups, common = [], [option for option in op.options if not option.beyond]
    for option in common:
        by_count: dict[int, list[Value]] = {}
        for value in option.values:
            chosen: dict[str, Any] = {option.name: value}
            count = len(op.operands(op.case(op.usual_shape, **chosen)))
            by_count.setdefault(count, []).append(value)
        groups.append(by_count.values())
    names = [option.name for option in common]
    return (dict(zip(names, map(tuple, values), strict=True)) for values in product(*groups))


def operand_groups(op: Declared) -> Iterator[tuple[dict[str, Any], range]]:
    """Options that give a call operands of its own, the plain ones first, and the positions of these operands."""
    plain = len(axes_of(op))
    for values in options_with_equal_operands(op):
        options = {name: one for name, (one, *_) in values.items()}
        if options == {option.name: option.values[0] for option in op.options if not option.beyond}:
            yield {}, range(plain)
        else:
            yield options, range(plain, len(axes_of(op, options)))


def choices(op: Declared) -> list[dict[str, Any]]:
    """The plain options, and each other value of each option."""
    return [{}, *({option.name: value} for option in op.options if not option.beyond for value in option.values[1:])]


def name_of(op: Declared, inputs: str, shape: Shape, options: Mapping[str, Any]) -> str:
    """Return the name of a family's case: `nan_causal`."""
    label = op.case(shape, **options).label
    return "_".join((inputs, *label.split(",")[len(shape) :]))


def axes_of(op: Declared, options: Mapping[str, Any] = NO_OPTIONS) -> list[int]:
    """Return the number of axes of each operand."""
    return [len(operand) for operand in op.operands(op.case(op.usual_shape, **options))]


def small_sizes(op: Declared) -> dict[str, int]:
    """Return a size of 2 for each dimension, or its smallest if that is more, or 0."""
    least = {name: min(levels) for name, levels in op.covered_sizes().items()}
    return {name: max(size, 2 * (size > 0)) for name, size in least.items()}


def is_extent(op: Declared, shape: Shape, size: int) -> bool:
    """True if this shape is valid and some axis of an operand is a multiple of `size`."""
    return cost_of(op, shape) is not None and any(
        n and n % size == 0 for array in op.operands(op.case(shape)) for n in array
    )


def cost_of(op: Declared, shape: Shape, options: Mapping[str, Any] = NO_OPTIONS, factor: int = 1) -> float | None:
    """Return the elements and operations of a case; None if it is not valid or has too many."""
    try:
        op.validate(op.named_dims(shape))
    except UsageError:
        return None
    case = op.case(shape, **options)
    elements = [math.prod(each) for each in (*op.operands(case), op.output_shape(case))]
    flops = op.flops(case)
    if max(elements) > MOST_ELEMENTS * factor or flops > MOST_FLOPS * factor:
        return None
    return sum(elements) + flops / 16
