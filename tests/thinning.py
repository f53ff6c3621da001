"""Chooses the parameter sets of `make test`: covering sets, which have every part of all. The others are `thorough`."""

from __future__ import annotations

import heapq
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations, product
from typing import Any, Protocol, TypeVar

import pytest

Row = TypeVar("Row", bound=tuple[Hashable, ...])
Item = TypeVar("Item", bound=Hashable)
Pair = tuple[int, Hashable, int, Hashable]


class Test(Protocol):
    """The part of `pytest.Item` that is needed here."""

    nodeid: str


Named = TypeVar("Named", bound=Test)
THOROUGH = pytest.mark.thorough


def thorough_unless(kept: bool) -> list[pytest.MarkDecorator]:
    """The marks of a parameter set: none if it is `kept` for `make test`."""
    return [] if kept else [THOROUGH]


def pairs(row: tuple[Hashable, ...]) -> set[Pair]:
    """Every pair of the row's columns, with their values."""
    return {(i, one, j, other) for (i, one), (j, other) in combinations(enumerate(row), 2)}


def covering(rows: Sequence[Row]) -> list[Row]:
    """Fewer of the rows, in their order, with every pair of values that occurs in the rows."""
    return covering_parts(rows, pairs)


def covering_values(rows: Sequence[Row]) -> list[Row]:
    """Fewer of the rows, in their order, with every value of each column that occurs in the rows."""
    return covering_parts(rows, lambda row: set(enumerate(row)))


def crossed(*columns: dict[str, Any]) -> list[object]:
    """The parameter sets of all combinations of values, by their names.

    Without a GPU `make test` has fewer, with every value of each column.
    """
    rows = [*product(*columns)]
    kept = {*(rows if os.environ.get("SUITE_TEST_GPU") else covering_values(rows))}
    return [
        pytest.param(*map(dict.__getitem__, columns, row), id="-".join(row), marks=thorough_unless(row in kept))
        for row in rows
    ]


def named(values: Iterable[Any]) -> dict[str, Any]:
    """The values by their texts."""
    return {str(value): value for value in values}


def repeats(tests: Iterable[Named]) -> list[Named]:
    """The tests without the first parameter set of each function."""
    first: dict[str, Named] = {}
    return [test for test in tests if first.setdefault(test.nodeid.partition("[")[0], test) is not test]


def covering_parts(items: Sequence[Item], parts_of: Callable[[Item], set[Any]]) -> list[Item]:
    """Fewer of the items, with every part that occurs in them: always the one with the most parts that are missing.

    Of equal ones it is the first by a checksum of the text, so that no value is preferred and the choice is the same at
    each call.
    """
    parts = {each: parts_of(each) for each in items}
    missing: set[Any] = set().union(*parts.values())
    waiting = [(-len(found), zlib.crc32(repr(each).encode()), each) for each, found in parts.items()]
    heapq.heapify(waiting)
    kept: set[Item] = set()
    while missing:
        _, order, item = heapq.heappop(waiting)
        count = len(parts[item] & missing)
        if waiting and count < -waiting[0][0]:  # its number is from before others were kept
            heapq.heappush(waiting, (-count, order, item))
        else:
            kept.add(item)
            missing -= parts[item]
    return [each for each in items if each in kept]


def chosen_by(items: Sequence[Any], parts_of: Callable[[Any], set[Any]], name: Callable[[Any], str]) -> list[object]:
    """The parameter sets of the items; `make test` has fewer, with every part that occurs in them."""
    parts = {name(each): parts_of(each) for each in items}
    kept = covering_parts([*parts], parts.__getitem__)
    return [pytest.param(each, id=name(each), marks=thorough_unless(name(each) in kept)) for each in items]
