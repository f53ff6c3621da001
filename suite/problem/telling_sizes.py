"""Telling cases by their sizes: long dimensions, large results, long and equal axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, cycle, product, zip_longest
from operator import ge
from typing import Any

from suite.problem.shape import Shape
from suite.problem.telling_case import FEW, TILE, Declared, TellingCase, choices, cost_of, is_extent, small_sizes

LONG = 1024
"""Size of one dimension while the others are 2: a multiple of every tile."""
ODD = 131
"""Another one, odd, prime and longer than two tiles."""
REMAINDERS = (132, 102, 120, 176, 480)
"""Other ones, between tiles, which are multiples of 4, 2, 8, 16 and 32 but not of twice as much: wide loads, and blocks
of so many elements, fit their rows, larger ones do not. Short dimensions, such as batches and heads, have the first."""
SEVERAL = 2
"""Factor on elements and operations in a case of several such dimensions."""
LONGER = 2053
"""One more, odd and longer than two blocks of 1024, in operations where such a case has few elements."""
ROUND = 1920
"""Another one there, for matrices and vectors. It is no power of two, and the next one is that of no other case."""
BLOCKS = 8192
"""Length of rows that are multiples of longer blocks, with the other dimensions small, where that is few elements."""
MANY = 2**16
"""Elements of a result beyond which an index has more than 16 bits."""
SQUARE = (3, 6, 12, 24, 48, 130, 260)
"""Sizes of two dimensions, with which axes that are fractions or multiples of dimensions are equal too."""


def extreme_sizes(op: Declared) -> Iterator[TellingCase]:
    """The smallest shape, and shapes with one long or empty dimension, the others small."""
    sizes, small = op.covered_sizes(), small_sizes(op)
    least = {name: min(levels) for name, levels in sizes.items()}
    usual = {name: (*levels, *levels)[1] for name, levels in sizes.items()}
    shape = op.shape_of_sizes(least)
    if cost_of(op, shape) is not None:
        yield TellingCase("least", shape, first=False)
    if len(sizes) == 1:
        yield TellingCase("small", op.shape_of_sizes(small), first=False)  # several dimensions are small in other cases
    for name in sizes:
        longs = (op.shape_of_sizes({**others, name: LONG}) for others in (small, least))
        long = next((shape for shape in longs if cost_of(op, shape, factor=FEW) is not None), None)
        if max(sizes[name]) < LONG and long is not None:
            yield TellingCase(f"{name}={LONG}", long, first=False)
        limit = MANY * (FEW if max(sizes[name]) >= LONG else 1)
        for size in (LONGER, ROUND):
            longers = (op.shape_of_sizes({**others, name: size}) for others in (small, least))
            longer = next((shape for shape in longers if (cost_of(op, shape) or limit) < limit), None)
            if longer is not None and (size != ROUND or _is_of_a_matrix(op, longer, size)):
                yield TellingCase(f"{name}={size}", longer, first=False)
        blocks = op.shape_of_sizes({**small, name: BLOCKS})
        if (cost_of(op, blocks) or math.inf) < 2 * MANY and _has_rows_of(op, blocks, BLOCKS):
            yield TellingCase(f"{name}={BLOCKS}", blocks, first=False)
        none = op.shape_of_sizes({**usual, name: 0})
        if 0 not in sizes[name] and cost_of(op, none) is not None and 0 not in op.output_shape(op.case(none)):
            yield TellingCase(f"{name}=0", none, first=False)


def _is_of_a_matrix(op: Declared, shape: Shape, size: int) -> bool:
    """True if an operand of two axes at most, and no operand of more, has an axis of this size."""
    arrays = [array for array in op.operands(op.case(shape)) if size in array]
    return bool(arrays) and max(map(len, arrays)) <= 2


def _has_rows_of(op: Declared, shape: Shape, size: int) -> bool:
    """True if the rows of an operand with the most axes have this size."""
    arrays = op.operands(op.case(shape))
    return any(array[-1:] == (size,) for array in arrays if len(array) == max(map(len, arrays)))


def remainders(op: Declared) -> Iterator[TellingCase]:
    """Cases in which each dimension takes ODD and each of REMAINDERS, several dimensions a case, each of another size.

    Those of several dimensions follow again, with other values of an option in turn. A dimension leaves out those that
    a level of it replaces: a longer one, or a multiple of no larger power of two.
    """
    small, others = small_sizes(op), cycle(choices(op)[1:])
    missing = [pair for pairs in zip_longest(*_missing_sizes(op)) for pair in pairs if pair is not None]
    while missing:
        chosen: dict[str, int] = {}
        for name, size in missing:
            more = {**chosen, name: size}
            is_new = name not in chosen and size not in chosen.values()
            if is_new and (not chosen or cost_of(op, op.shape_of_sizes({**small, **more}), factor=SEVERAL) is not None):
                chosen = more
        missing = [(name, size) for name, size in missing if chosen.get(name) != size]
        label = ",".join(f"{name}={size}" for name, size in chosen.items())
        shape = op.shape_of_sizes({**small, **chosen})
        yield TellingCase(label, shape, first=False)
        options = next(others, None) if len(chosen) > 1 else None
        if options is not None and cost_of(op, shape, options, FEW) is not None:
            yield TellingCase(op.case(shape, **options).label, shape, options=options, first=False)


def _missing_sizes(op: Declared) -> Iterator[list[tuple[str, int]]]:
    """Yield each dimension with the sizes that it takes in `remainders`, beginning with another one in turn."""
    small = small_sizes(op)
    for position, (name, levels) in enumerate(op.covered_sizes().items()):
        odd = [ODD] if max(levels) < ODD else []
        even = REMAINDERS if max(levels) > TILE else REMAINDERS[:1]
        found = odd + [size for size in even if all(level & -level != size & -size for level in levels)]
        shapes = {size: op.shape_of_sizes({**small, name: size}) for size in found}
        valid = [size for size in found if size == ODD or is_extent(op, shapes[size], size)]
        valid = [size for size in valid if cost_of(op, shapes[size], factor=FEW) is not None]
        turn = position % max(len(valid), 1)
        yield [(name, size) for size in (*valid[turn:], *valid[:turn])]


def large_results(op: Declared, others: Sequence[Shape]) -> Iterator[TellingCase]:
    """The cheapest case with a large result, for each result that is large in none of the other shapes.

    One or two dimensions are long, the others small.
    """
    sizes, small = op.covered_sizes(), small_sizes(op)
    long = [{name: MANY + 259} for name in sizes]
    long += [dict.fromkeys(two, math.isqrt(MANY) + 7) for two in combinations(sizes, 2)]
    shapes = [op.shape_of_sizes({**small, **each}) for each in long]
    costs = {shape: found for shape in shapes if (found := cost_of(op, shape, factor=FEW)) is not None}
    for number in reversed(range(len(op.output_shapes(op.case(op.usual_shape))))):  # the first is the largest

        def is_large(shape: Shape, number: int = number) -> bool:
            return math.prod(op.output_shapes(op.case(shape))[number]) > MANY

        cheapest = min(filter(is_large, costs), key=costs.__getitem__, default=None)
        if cheapest is not None and not any(map(is_large, others)):
            others = (*others, cheapest)
            yield TellingCase(op.case(cheapest).label, cheapest, first=False)


def long_axes(op: Declared, others: Sequence[TellingCase]) -> Iterator[TellingCase]:
    """The cheapest case with a long axis, for each axis and option value that have no long case among `others`.

    An axis may be a fraction of a dimension, such as the axis of groups of columns. Where another dimension is 1, an
    option such as a mask may change nothing: such a case does not count.
    """
    small = small_sizes(op)
    least = op.shape_of_sizes(small)
    long = [{name: (TILE + 1) << power} for name in op.covered_sizes() for power in range(8)]
    shapes = [op.shape_of_sizes({**small, **each}) for each in long]
    ordinary = [each for each in others if all(map(ge, each.shape, least))]
    for chosen in choices(op):
        costs = {shape: found for shape in shapes if (found := cost_of(op, shape, chosen, FEW)) is not None}
        alike = [each for each in ordinary if chosen.items() <= each.options.items()]
        known = {axis for each in alike for axis in _axes_beyond_a_tile(op, each.shape, each.options)}
        for shape in sorted(costs, key=costs.__getitem__):
            beyond = _axes_beyond_a_tile(op, shape, chosen)
            if beyond - known:
                yield TellingCase(op.case(shape, **chosen).label, shape, options=chosen, first=False)
            known |= beyond


def squares(op: Declared, others: Sequence[TellingCase]) -> Iterator[TellingCase]:
    """The cheapest case in which the last two axes are equal, for each operand or result that has no such case.

    A kernel that takes one of the axes for the other may be wrong there alone.
    """
    two = [
        dict(zip(names, pair, strict=True))
        for names in combinations(op.covered_sizes(), 2)
        for pair in product(SQUARE, SQUARE)
    ]
    shapes = [op.shape_of_sizes({**small_sizes(op), **each}) for each in two]
    for chosen in choices(op):
        alike = [each for each in others if chosen.items() <= each.options.items()]
        known = {number for each in alike for number in _squares(op, each.shape, each.options)}
        missing = {number for number, array in _arrays(op, op.usual_shape, chosen).items() if len(array) > 1} - known
        costs = {shape: found for shape in shapes if missing and (found := cost_of(op, shape, chosen)) is not None}
        for shape in sorted(costs, key=costs.__getitem__):
            if new := missing & _squares(op, shape, chosen):
                missing -= new
                yield TellingCase(op.case(shape, **chosen).label, shape, options=chosen, first=False)


def _axes_beyond_a_tile(op: Declared, shape: Shape, options: Mapping[str, Any]) -> set[tuple[int, int]]:
    arrays = _arrays(op, shape, options).items()
    return {(number, axis) for number, array in arrays for axis, size in enumerate(array) if size > TILE}


def _squares(op: Declared, shape: Shape, options: Mapping[str, Any]) -> set[int]:
    arrays = _arrays(op, shape, options).items()
    return {number for number, array in arrays if len(array) > 1 and array[-1] == array[-2] > 2}


def _arrays(op: Declared, shape: Shape, options: Mapping[str, Any]) -> dict[int, Shape]:
    """The shapes of operands by position, and those of results by position from the end, the last one at -1."""
    case = op.case(shape, **options)
    results = op.output_shapes(case)
    return {**dict(enumerate(op.operands(case))), **dict(enumerate(results, -len(results)))}
