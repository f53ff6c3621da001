"""Telling cases: small ones that show the mistakes which an operation's usual sizes and inputs hide.

An operation has those that it names itself, and a set that is built from its declarations:

1. a covering set of sizes, options, arguments and layouts, in which every pair occurs (`suite/problem/covering.py`);
2. each family of inputs with each value of its options, at the family's first shape;
3. each operand repeated along each axis with a stride of 0; all operands along an axis of a sum;
4. each operand with a NaN, with infinities, and with subnormal numbers;
5. operands one element off 16 bytes, with sizes that are multiples of 8;
6. each dimension as LONG, and as 0 where there is still a result, with the other dimensions small; all of them least;
7. each result with more than 2^16 elements;
8. each axis of an operand or result longer than a tile, with each value of each option;
9. all operands with offsets of more than 31 bits, along each of their axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from suite.core.errors import UsageError
from suite.problem.case import Case
from suite.problem.covering import Row, cover
from suite.problem.option import Option, Value
from suite.problem.shape import Shape
from suite.problem.specials import kind_of, names

if TYPE_CHECKING:
    from suite.problem.family import Family

SIZES = (1, 31, 64, 257, 1024)
"""Sizes of a dimension in the covering set: 1; odd, prime and below a tile; a tile; odd, prime, above a tile and longer
than two; and a multiple of every tile."""
LONG = (131, 1024)
"""Sizes of one dimension while the others are 2: longer than two tiles, odd and prime; a multiple of every tile."""
LONGER = 2053
"""Another one, odd and longer than two blocks of 1024, in operations where such a case has few elements."""
MOST_ELEMENTS, MOST_FLOPS = 2**19, 2**25
"""Largest number of elements of an operand or result, and of operations, in a case of the covering set."""
ENOUGH = 2**13
"""Elements and operations below which no smaller case is preferred, because the smallest show little."""
MOST_FIRST = 2**20
"""With more elements or operations, the suite's own implementations skip a family's case."""
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
FEW = 8
"""Factor on both for a case of one long dimension."""
MANY = 2**16
"""Elements of a result beyond which an index has more than 16 bits."""
TILE = 64
"""An axis is long if it is longer than this."""


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
    def untold(self) -> tuple[str, ...]: ...
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
    def output_shape(self, case: Case) -> Shape: ...
    def output_shapes(self, case: Case) -> tuple[Shape, ...]: ...
    def flops(self, case: Case) -> int: ...
    def telling_cases(
        self, dtype: str, precision: str, *, first: bool = ..., device_type: str = ...
    ) -> Mapping[str, Case]: ...


def all_telling_cases(op: Declared) -> tuple[TellingCase, ...]:
    """Return the telling cases of an operation: its own, then cheap and plain ones before dear and combined ones."""
    rows = sorted(_covering_set(op), key=lambda each: _cost(op, each.shape, each.options) or 0)
    cheap = (*op.telling, *_families(op), *_repetitions(op), *_specials(op), *_misaligned(op), *_extreme_sizes(op))
    others = (*cheap, *rows)
    found = (*cheap, *_large_results(op, [each.shape for each in others]), *_long_axes(op, others), *rows, *_far(op))
    told = (each for each in found if not {each.name, each.inputs, f"{kind_of(each.inputs)}@"} & set(op.untold))
    return tuple(sorted(told, key=lambda each: not each.first))


def _covering_set(op: Declared) -> Iterator[TellingCase]:
    """A covering set for each group of options with equally many operands: a kernel may take only the plain ones."""
    seen: dict[str, set[Any]] = {}
    for options in _options_with_equal_operands(op):
        fixed = {name: value for name, (value, *others) in options.items() if not others}
        for row in _covering_rows(op, options, fixed):
            first = any(value not in seen.get(name, ()) for name, value in row.items())
            for name, value in row.items():
                seen.setdefault(name, set()).add(value)
            inputs = "+".join(each for each in dict.fromkeys((row[""], row["/"])) if each != "normal") or "normal"
            chosen = {**fixed, **{name: row[name] for name in options if name not in fixed}}
            case = op.case(op.shape_of_sizes(row), inputs=inputs, **chosen)
            yield TellingCase(case.label, case.shape, inputs, chosen, first)


def _options_with_equal_operands(op: Declared) -> Iterator[dict[str, tuple[Value, ...]]]:
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


def _covering_rows(op: Declared, options: Mapping[str, tuple[Value, ...]], fixed: Mapping[str, Value]) -> list[Row]:
    from suite.problem import layouts

    varied = {name: values for name, values in options.items() if name not in fixed}
    arguments = [name for name, family in op.families.items() if family.arguments]
    placed = layouts.rotations(_axes(op, {name: values[0] for name, values in options.items()}))
    factors = {**op.covered_sizes(), **varied, "": ("normal", *arguments), "/": ("normal", *placed)}

    def cost(row: Row) -> float | None:
        found = _cost(op, op.shape_of_sizes(row), {**fixed, **{name: row[name] for name in varied}})
        return None if found is None else max(found, ENOUGH)

    return cover(factors, cost)


def _families(op: Declared) -> Iterator[TellingCase]:
    """Each family with numbers, options or a placement that the covering set does not have, at its first shape.

    Every combination of its options is a case.
    """
    for name, family in op.families.items():
        if family.needs_gpu or not family.shapes or _is_covered(op, family):
            continue
        values = {
            option.name: family.options.get(option.name) or (option.values if option.every else option.values[:1])
            for option in op.options
        }
        for number, chosen in enumerate(product(*values.values())):
            options: dict[str, Any] = dict(zip(values, chosen, strict=True))
            label = op.case(family.shapes[0], inputs=name, **options).label
            text = label.split(f",inputs={name}")[0].split(",")[len(family.shapes[0]) :]
            cheap = (_cost(op, family.shapes[0], options, FEW) or 0) < MOST_FIRST
            yield TellingCase("_".join((name, *text)), family.shapes[0], name, options, cheap and number == 0)


def _is_covered(op: Declared, family: Family) -> bool:
    from suite.problem import layouts

    usual = family.values is op.families["normal"].values and family.place in layouts.PLACEMENTS
    return usual and not (family.options and family.place is layouts.PLACEMENTS[0])


def _repetitions(op: Declared) -> Iterator[TellingCase]:
    from suite.problem import layouts

    axes = _axes(op)
    together = dict.fromkeys(layouts.repetition(len(axes), shared) for shared in _shared_axes(op))
    for number, inputs in enumerate((*layouts.repetitions(axes), *together)):
        yield TellingCase(inputs, op.usual_shape, inputs, first=number == 0)


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


def _specials(op: Declared) -> Iterator[TellingCase]:
    for inputs in names(len(_axes(op))):
        yield TellingCase(inputs, op.usual_shape, inputs, first=False)


def _misaligned(op: Declared) -> Iterator[TellingCase]:
    """Sizes that permit wide loads, at addresses that do not."""
    sizes = op.covered_sizes()
    wide = {
        name: next((size for size in levels if size and size % 8 == 0), max(levels)) for name, levels in sizes.items()
    }
    shape = op.shape_of_sizes(wide)
    if _cost(op, shape) is not None:
        yield TellingCase("misaligned", shape, "misaligned", first=False)


def _far(op: Declared) -> Iterator[TellingCase]:
    from suite.problem import far, layouts

    for number, inputs in enumerate(far.layouts(_axes(op), layouts.FAR)):
        yield TellingCase(inputs, op.usual_shape, inputs, first=number == 0)


def _large_results(op: Declared, others: Sequence[Shape]) -> Iterator[TellingCase]:
    """The cheapest case with a large result, for each result that is large in none of the other shapes.

    One or two dimensions are long, the others small.
    """
    sizes, small = op.covered_sizes(), _small(op)
    long = [{name: MANY + 259} for name in sizes]
    long += [dict.fromkeys(two, math.isqrt(MANY) + 7) for two in combinations(sizes, 2)]
    shapes = [op.shape_of_sizes({**small, **each}) for each in long]
    costs = {shape: found for shape in shapes if (found := _cost(op, shape, factor=FEW)) is not None}
    for number in reversed(range(len(op.output_shapes(op.case(op.usual_shape))))):  # the first is the largest

        def is_large(shape: Shape, number: int = number) -> bool:
            return math.prod(op.output_shapes(op.case(shape))[number]) > MANY

        cheapest = min(filter(is_large, costs), key=costs.__getitem__, default=None)
        if cheapest is not None and not any(map(is_large, others)):
            others = (*others, cheapest)
            yield TellingCase(op.case(cheapest).label, cheapest, first=False)


def _long_axes(op: Declared, others: Sequence[TellingCase]) -> Iterator[TellingCase]:
    """The cheapest case with a long axis, for each axis and option value that have no long case among `others`.

    An axis may be a fraction of a dimension, such as the axis of groups of columns.
    """
    long = [{name: (TILE + 1) << power} for name in op.covered_sizes() for power in range(8)]
    shapes = [op.shape_of_sizes({**_small(op), **each}) for each in long]
    choices: list[dict[str, Any]] = [
        {option.name: value} for option in op.options if not option.beyond for value in option.values[1:]
    ]
    for chosen in ({}, *choices):
        costs = {shape: found for shape in shapes if (found := _cost(op, shape, chosen, FEW)) is not None}
        alike = [each for each in others if chosen.items() <= each.options.items()]
        known = {axis for each in alike for axis in _axes_beyond_a_tile(op, each.shape, each.options)}
        for shape in sorted(costs, key=costs.__getitem__):
            beyond = _axes_beyond_a_tile(op, shape, chosen)
            if beyond - known:
                yield TellingCase(op.case(shape, **chosen).label, shape, options=chosen, first=False)
            known |= beyond


def _axes_beyond_a_tile(op: Declared, shape: Shape, options: Mapping[str, Any]) -> set[tuple[int, int]]:
    case = op.case(shape, **options)
    arrays = enumerate((*op.operands(case), *op.output_shapes(case)))
    return {(number, axis) for number, array in arrays for axis, size in enumerate(array) if size > TILE}


def _axes(op: Declared, options: Mapping[str, Any] = NO_OPTIONS) -> list[int]:
    return [len(operand) for operand in op.operands(op.case(op.usual_shape, **options))]


def _small(op: Declared) -> dict[str, int]:
    """Return a size of 2 for each dimension, or its smallest if that is more, or 0."""
    least = {name: min(levels) for name, levels in op.covered_sizes().items()}
    return {name: max(size, 2 * (size > 0)) for name, size in least.items()}


def _extreme_sizes(op: Declared) -> Iterator[TellingCase]:
    sizes, small = op.covered_sizes(), _small(op)
    least = {name: min(levels) for name, levels in sizes.items()}
    usual = {name: (*levels, *levels)[1] for name, levels in sizes.items()}
    shape = op.shape_of_sizes(least)
    if _cost(op, shape) is not None:
        yield TellingCase("least", shape, first=False)
    for name in sizes:
        for size in LONG:
            longs = (op.shape_of_sizes({**others, name: size}) for others in (small, least))
            long = next((shape for shape in longs if _cost(op, shape, factor=FEW) is not None), None)
            if max(sizes[name]) < size and long is not None:
                yield TellingCase(f"{name}={size}", long, first=False)
        longer = op.shape_of_sizes({**small, name: LONGER})
        if (_cost(op, longer) or MANY) < MANY:
            yield TellingCase(f"{name}={LONGER}", longer, first=False)
        none = op.shape_of_sizes({**usual, name: 0})
        if 0 not in sizes[name] and _cost(op, none) is not None and 0 not in op.output_shape(op.case(none)):
            yield TellingCase(f"{name}=0", none, first=False)


def _cost(op: Declared, shape: Shape, options: Mapping[str, Any] = NO_OPTIONS, factor: int = 1) -> float | None:
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
