"""Telling cases: small ones that show the mistakes which an operation's usual sizes and inputs hide.

An operation has those that it names itself, and a set that is built from its declarations:

1. a covering set of sizes, options, arguments and layouts, in which every pair occurs (`suite/problem/covering.py`);
   a second one for dimensions whose sizes are short, with LONG_LEVELS of them;
2. each family of inputs with each value of its options, at the family's first shape; its other shapes, and its numbers
   at odd sizes;
3. each operand repeated along each axis with a stride of 0; all operands along an axis of a sum, and along all axes;
   all operands repeated with each value of each option;
4. each operand with a NaN, with infinities, and with subnormal numbers;
5. operands one element off 16 bytes, and rows that are the first halves of longer ones, with sizes that are multiples
   of 8, and of 128;
6. each dimension as LONG, and as 0 where there is still a result, with the other dimensions small; all dimensions at
   their smallest; rows of BLOCKS elements; each dimension as LONGER, as ROUND, as ODD and as each of REMAINDERS,
   several of them with other options too;
7. each result with more than 2^16 elements;
8. each axis of an operand or result longer than a tile, and its last two axes equal, with each value of each option;
9. all operands with offsets of more than 31 bits, along each of their axes.

Operands that a call has only with an option have the cases 3, 4, 5 and 9 of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

from suite.problem import layouts, telling_inputs, telling_sizes
from suite.problem.covering import Row, cover
from suite.problem.option import Value
from suite.problem.shape import Shape
from suite.problem.specials import kind_of
from suite.problem.telling_case import (
    TILE,
    Declared,
    TellingCase,
    axes_of,
    cost_of,
    is_extent,
    options_with_equal_operands,
    small_sizes,
)

LONG_LEVELS = (131,)
"""Sizes of a dimension in the second covering set, if those in the first are no longer than a tile."""
ENOUGH = 2**13
"""Elements and operations below which no smaller case is preferred, because the smallest show little."""


def all_telling_cases(op: Declared) -> tuple[TellingCase, ...]:
    """Return the telling cases of an operation: its own, then cheap and plain ones before dear and combined ones."""
    rows = sorted(_covering_set(op), key=lambda each: cost_of(op, each.shape, each.options) or 0)
    kinds = (
        telling_inputs.families,
        telling_inputs.repetitions,
        telling_inputs.specials,
        telling_inputs.wide,
        telling_sizes.extreme_sizes,
        telling_sizes.remainders,
    )
    cheap = [*op.telling, *(each for kind in kinds for each in kind(op))]
    others = [*cheap, *rows]
    large = telling_sizes.large_results(op, [each.shape for each in others])
    axes = (*telling_sizes.long_axes(op, others), *telling_sizes.squares(op, others))
    found = (*cheap, *large, *axes, *rows, *telling_inputs.far(op))
    kept = (each for each in found if not _names(each) & set(op.telling_left_out))
    return tuple(sorted(kept, key=lambda each: not each.first))


def _names(case: TellingCase) -> set[str]:
    """The names by which an operation leaves a case out."""
    return {case.name, case.name.removesuffix(telling_inputs.AT_ODD_SIZES), case.inputs, f"{kind_of(case.inputs)}@"}


def _covering_set(op: Declared) -> Iterator[TellingCase]:
    """A covering set for each group of options with equally many operands: a kernel may take only the plain ones."""
    seen: dict[str, set[Any]] = {}
    for options, long in product(options_with_equal_operands(op), (False, True)):
        fixed = {name: value for name, (value, *others) in options.items() if not others}
        for row in _covering_rows(op, options, fixed, long):
            first = not long and any(value not in seen.get(name, ()) for name, value in row.items())
            for name, value in row.items() if not long else ():
                seen.setdefault(name, set()).add(value)
            inputs = "+".join(each for each in dict.fromkeys((row[""], row["/"])) if each != "normal") or "normal"
            chosen = {**fixed, **{name: row[name] for name in options if name not in fixed}}
            case = op.case(op.shape_of_sizes(row), inputs=inputs, **chosen)
            yield TellingCase(case.label, case.shape, inputs, chosen, first)


def _covering_rows(
    op: Declared, options: Mapping[str, tuple[Value, ...]], fixed: Mapping[str, Value], long: bool
) -> list[Row]:
    """The rows for these options; long: those with pairs of LONG_LEVELS instead."""
    varied = {name: values for name, values in options.items() if name not in fixed}
    arguments = [name for name, family in op.families.items() if family.arguments]
    placed = layouts.rotations(axes_of(op, {name: values[0] for name, values in options.items()}))
    factors = {**op.covered_sizes(), **varied, "": ("normal", *arguments), "/": ("normal", *placed)}
    added = dict.fromkeys(_short_dimensions(op), LONG_LEVELS) if long else {}

    @cache  # rows that differ in their inputs alone cost the same
    def cost_of_sizes(shape: Shape, *values: Value) -> float | None:
        found = cost_of(op, shape, {**fixed, **dict(zip(varied, values, strict=True))})
        return None if found is None else max(found, ENOUGH)

    def cost(row: Row) -> float | None:
        return cost_of_sizes(op.shape_of_sizes(row), *(row[name] for name in varied))

    return cover(factors, cost, added) if added or not long else []


def _short_dimensions(op: Declared) -> list[str]:
    """Dimensions that are no longer than a tile in the covering set, but may be."""
    sizes, small = op.covered_sizes(), small_sizes(op)
    return [
        name
        for name, levels in sizes.items()
        if max(levels) <= TILE
        and all(is_extent(op, op.shape_of_sizes({**small, name: size}), size) for size in LONG_LEVELS)
    ]
