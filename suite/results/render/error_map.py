"""Draws error maps as lines of text: the places where the result of a wrong row is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from suite.checking.error_map import ErrorMap, character
from suite.core.errors import ResultsError
from suite.core.integers import cdiv
from suite.core.text import one_line
from suite.results.row import Row

MAX_LINES, MAX_COLUMNS = 8, 32
"""The largest number of tiles shown downwards and across. Finer maps are made coarser."""


def map_of(row: Row) -> ErrorMap | None:
    """The row's map; None if it has none or it cannot be read."""
    try:
        return ErrorMap.parse(row.error_map) if row.error_map else None
    except ResultsError:
        return None


def map_lines(rows: Sequence[Row], *, every: bool) -> list[str]:
    """The map of the first row whose errors are not everywhere. With `every`, the maps of all rows that have one."""
    found = [(row, each) for row in rows if (each := map_of(row)) is not None and (every or not each.is_uniform)]
    lines = []
    for row, each in found if every else found[:1]:
        tile, shares = coarse(each)
        size = f"{tile[0]} x {tile[1]}" if len(shares) > 1 else str(tile[1])
        lines.append(
            f"{one_line(row.implementation)}: wrong elements in tiles of {size}; . none, 1 to 9 tenths of them, # all"
        )
        places = [str(tile[0] * place) for place in range(len(shares))]
        width = max(map(len, places))
        lines += [
            f"{place:>{width + 4}}  {''.join(map(character, line))}" for place, line in zip(places, shares, strict=True)
        ]
    return lines


def coarse(found: ErrorMap) -> tuple[tuple[int, int], list[list[float]]]:
    """A map with few enough tiles to be shown: the size of a tile, and the share of wrong elements in each."""
    shares = found.shares()
    factors = [cdiv(len(of), most) for of, most in ((shares, MAX_LINES), (shares[0], MAX_COLUMNS))]
    down, across = factors
    merged = [
        [_mean([share for line in shares[i : i + down] for share in line[j : j + across]])
         for j in range(0, len(shares[0]), across)]
        for i in range(0, len(shares), down)
    ]  # fmt: skip
    return (found.tile[0] * down, found.tile[1] * across), merged


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
