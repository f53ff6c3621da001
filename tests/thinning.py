"""Fewer combinations on a machine without a GPU: covering sets, which still have every value, or every pair of them."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import TypeVar

Row = TypeVar("Row", bound=tuple[Hashable, ...])
Pair = tuple[int, Hashable, int, Hashable]


def pairs(row: tuple[Hashable, ...]) -> set[Pair]:
    """Every pair of the row's columns, with their values."""
    return {(i, one, j, other) for (i, one), (j, other) in combinations(enumerate(row), 2)}


def covering(rows: Sequence[Row]) -> list[Row]:
    """Fewer of the rows, in their order, with every pair of values that occurs in the rows.

    Rows are tried in the order of a checksum of their text, so that no value is preferred and the choice is the same
    at each call. A row that adds no pair is left out.
    """
    kept: set[Row] = set()
    found: set[Pair] = set()
    for row in sorted(rows, key=lambda each: zlib.crc32(repr(each).encode())):
        if not pairs(row) <= found:
            kept.add(row)
            found |= pairs(row)
    return [row for row in rows if row in kept]


def covering_words(texts: Sequence[str]) -> list[str]:
    """Fewer of the texts, in their order, with every word that occurs in the texts; chosen as `covering` does."""
    kept: set[str] = set()
    found: set[str] = set()
    for text in sorted(texts, key=lambda each: zlib.crc32(each.encode())):
        if not found.issuperset(text.split()):
            kept.add(text)
            found.update(text.split())
    return [text for text in texts if text in kept]
