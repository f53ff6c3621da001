"""Telling cases by their inputs: numbers, repeated operands, addresses and far slices, mostly at the usual sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from suite.problem import far as far_apart
from suite.problem import layouts
from suite.problem.shape import Shape
from suite.problem.specials import names, position_of
from suite.problem.telling_case import FEW, Declared, TellingCase, axes_of, choices, cost_of, name_of, operand_groups

if TYPE_CHECKING:
    from suite.problem.family import Family

MOST_FIRST = 2**20
"""With more elements or operations, the suite's own implementations skip a family's case."""
MOST_OTHER = 2**18
"""With fewer elements and operations, a shape of a family beyond the first one is a case."""
ONLY_SIZES = ("sizes", "empty")
"""Families whose sizes the covering set and the extreme sizes stand for."""
AT_ODD_SIZES = "_odd"
"""Suffix of the name of a family's second case."""
WIDE = (8, 128)
"""Numbers of elements that wide loads, or rows of whole tiles, have."""


def families(op: Declared) -> Iterator[TellingCase]:
    """Each family with numbers, options or a placement that the covering set does not have, at its first shape.

    Every combination of its options is a case there. Its other shapes have one combination each, if they are cheap.
    Numbers are also drawn at the usual sizes, if one of these is odd where the first shape has an even size: a tail may
    hold a number that only some families tell from a right one.
    """
    for turn, (name, family) in enumerate(op.families.items()):
        if family.needs_gpu or not family.shapes or _is_covered(op, family):
            continue
        values = {
            option.name: family.options.get(option.name) or (option.values if option.every else option.values[:1])
            for option in op.options
        }
        combinations = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
        for number, options in enumerate(combinations):
            cheap = (cost_of(op, family.shapes[0], options, FEW) or 0) < MOST_FIRST
            yield TellingCase(
                name_of(op, name, family.shapes[0], options), family.shapes[0], name, options, cheap and number == 0
            )
        yield from _other_shapes(op, name, family, combinations)
        has_numbers = family.values is not op.families["normal"].values and 0 not in family.shapes[0]
        if has_numbers and _is_odd_beside(op.usual_shape, family.shapes[0]):
            options = combinations[turn % len(combinations)]
            label = name_of(op, name, op.usual_shape, options) + AT_ODD_SIZES
            yield TellingCase(label, op.usual_shape, name, options, first=False)


def _other_shapes(
    op: Declared, name: str, family: Family, combinations: Sequence[Mapping[str, Any]]
) -> Iterator[TellingCase]:
    """The shapes of a family beyond the first one, without those that only have sizes of their own."""
    if name in ONLY_SIZES:
        return
    for turn, shape in enumerate(family.shapes[1:], start=1):
        options = combinations[turn % len(combinations)]
        if (cost_of(op, shape, options, FEW) or MOST_OTHER) < MOST_OTHER:
            label = f"{name_of(op, name, shape, options)}_{turn + 1}"
            yield TellingCase(label, shape, name, options, first=False)


def _is_odd_beside(shape: Shape, other: Shape) -> bool:
    """True if a size of `shape` is odd where that of the other one is even."""
    return any(size % 2 and beside % 2 == 0 for size, beside in zip(shape, other, strict=True))


def _is_covered(op: Declared, family: Family) -> bool:
    usual = family.values is op.families["normal"].values and family.place in layouts.PLACEMENTS
    return usual and not (family.options and family.place is layouts.PLACEMENTS[0])


def repetitions(op: Declared) -> Iterator[TellingCase]:
    """Operands with a stride of 0: one along each axis, several along a summed axis, all with each option."""
    for options, new in operand_groups(op):
        axes = axes_of(op, options)
        each = [{operand: axis} for operand in new for axis in range(axes[operand])]
        together = _shared_axes(op) if 0 in new else ()
        repeated = dict.fromkeys(layouts.repetition(len(axes), axis) for axis in (*each, *together))
        for number, inputs in enumerate(repeated):
            yield _usual(op, inputs, options, first=number == 0 and 0 in new)
        if max(axes) > 1:
            yield _usual(op, layouts.REPEATED, options)
    for options in choices(op)[1:]:
        axes = axes_of(op, options)
        for turn in range(min(2, max(axes))):
            all_operands = {operand: (turn + operand) % count for operand, count in enumerate(axes) if count}
            yield _usual(op, layouts.repetition(len(axes), all_operands), options)


def _usual(op: Declared, inputs: str, options: Mapping[str, Any], *, first: bool = False) -> TellingCase:
    return TellingCase(name_of(op, inputs, op.usual_shape, options), op.usual_shape, inputs, options, first)


def _shared_axes(op: Declared) -> Iterator[dict[int, int]]:
    """For each size that several operands have and some result lacks: the first such axis, by the operand's position.

    Results are sums along it.
    """
    sizes = op.covered_sizes()
    usual = {name: (*levels, *levels)[1] for name, levels in sizes.items()}
    before = op.case(op.usual_shape)
    for name, size in usual.items():
        after = op.case(op.shape_of_sizes({**usual, name: 2 * size}))
        axes = {
            operand: axis
            for operand, shapes in enumerate(zip(op.operands(before), op.operands(after), strict=True))
            for axis in reversed([axis for axis, (one, other) in enumerate(zip(*shapes, strict=True)) if one != other])
        }
        results = zip(op.output_shapes(before), op.output_shapes(after), strict=True)
        if len(axes) > 1 and any(one == other for one, other in results):
            yield axes


def specials(op: Declared) -> Iterator[TellingCase]:
    """Special numbers in each operand that has numbers and an axis."""
    for options, new in operand_groups(op):
        case = op.case(op.usual_shape, **options)
        shapes, dtypes = op.operands(case), op.operand_dtypes(case)
        for inputs in names(len(shapes)):
            at = position_of(inputs)
            if at in new and shapes[at] and "int" not in dtypes[at]:
                yield _usual(op, inputs, options)


def wide(op: Declared) -> Iterator[TellingCase]:
    """Sizes that permit wide loads, at misaligned addresses, and in rows with gaps."""
    for (options, _), multiple in product(operand_groups(op), WIDE):
        shape = _wide_shape(op, multiple, options)
        if shape is None:
            continue
        for inputs in ("misaligned", "halved"):
            name = name_of(op, inputs if multiple == WIDE[0] else f"{inputs}_{multiple}", shape, options)
            yield TellingCase(name, shape, inputs, options, first=False)


def _wide_shape(op: Declared, multiple: int, options: Mapping[str, Any]) -> Shape | None:
    """Return the shape whose dimensions each have their first size that is a multiple of `multiple`.

    None if it has too many elements. A dimension without such a size has its largest size, or its smallest if that has
    too many elements.
    """
    for otherwise in (max, min):
        sizes = {
            name: next((n for n in levels if n and n % multiple == 0), otherwise(levels))
            for name, levels in op.covered_sizes().items()
        }
        if cost_of(op, shape := op.shape_of_sizes(sizes), options) is not None:
            return shape
    return None


def far(op: Declared) -> Iterator[TellingCase]:
    """Slices of an axis 2^31 elements apart, for each axis; the sizes of the second case permit wide loads."""
    for options, new in operand_groups(op):
        shapes = (op.usual_shape, _wide_shape(op, WIDE[0], options) or op.usual_shape)
        for number, inputs in enumerate(far_apart.layouts(axes_of(op, options), layouts.FAR)):
            shape = shapes[number == 1]
            name = name_of(op, inputs, shape, options)
            yield TellingCase(name, shape, inputs, options, first=number == 0 and 0 in new)
