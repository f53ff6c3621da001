"""A covering set: few rows of levels, one level of each factor a row, in which every pair of levels occurs.

Mistakes of kernels depend on one property of a case or on two together: a size and a layout, an option and a size. All
combinations would be thousands; the pairs fit into a few dozen rows. The rows are chosen greedily from a pool of
random valid ones: the row with the most pairs that have not occurred, and of these the cheapest.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from heapq import heapify, heapreplace
from itertools import combinations
from operator import or_
from types import MappingProxyType
from typing import Any

Row = dict[str, Any]
Pair = tuple[tuple[str, int], tuple[str, int]]
Key = tuple[int, ...]
"""The numbers of a row's levels, in the order of the factors."""
Offer = tuple[float, int, frozenset[tuple[str, int]]]
"""Cost of a row, the bits of its pairs, and its levels that count."""

NOTHING: Mapping[str, Sequence[Any]] = MappingProxyType({})
POOL = 1500
"""Random rows to choose from."""
TRIES = 40
"""Random rows tried for a pair that the pool does not have. If all are invalid, the pair is left out."""


def cover(
    factors: Mapping[str, Sequence[Any]],
    cost: Callable[[Row], float | None],
    added: Mapping[str, Sequence[Any]] = NOTHING,
) -> list[Row]:
    """Return rows that contain every pair of levels of two factors that some valid row has.

    factors: levels by factor. cost: the cost of a row; None for one that is not valid. added: further levels of some
    factors; only pairs with one of them count then. The first rows contain every level that counts at least once, if a
    valid row has it. The same arguments give the same rows.
    """
    source = random.Random(0)
    names = list(factors)
    before = {name: len(levels) if added else 0 for name, levels in factors.items()}
    factors = {name: (*levels, *added.get(name, ())) for name, levels in factors.items()}
    pairs = [
        ((one, i), (two, j))
        for one, two in combinations(names, 2)
        for i in range(len(factors[one]))
        for j in range(len(factors[two]))
        if i >= before[one] or j >= before[two]
    ]
    bit = {pair: 1 << number for number, pair in enumerate(pairs)}
    counts = [len(factors[name]) for name in names]
    tables = [
        (one, two, [[bit.get(((names[one], i), (names[two], j)), 0) for j in range(counts[two])] for i in range(size)])
        for (one, size), (two, _) in combinations(enumerate(counts), 2)
    ]
    pool: dict[Key, Offer] = {}

    def below(count: int) -> int:
        """A random number, as `randrange` draws it."""
        size = count.bit_length()
        while (found := source.getrandbits(size)) >= count:
            pass
        return found

    def offer(key: Key) -> int:
        """Add a row of level numbers to the pool if it is valid; return the bits of its pairs."""
        if key not in pool:
            price = cost({name: factors[name][at] for name, at in zip(names, key, strict=True)})
            if price is None:
                return 0
            mask = sum(table[key[one]][key[two]] for one, two, table in tables)
            levels = zip(names, key, strict=True)
            pool[key] = price, mask, frozenset((name, at) for name, at in levels if at >= before[name])
        return pool[key][1]

    for _ in range(POOL):
        offer(tuple(map(below, counts)))
    found = reduce(or_, (mask for _, mask, _ in pool.values()), 0)
    for pair, place in bit.items():
        fixed = {names.index(name): at for name, at in pair}
        for _ in range(TRIES if not found & place else 0):
            drawn = list(map(below, counts))
            found |= offer(tuple(fixed.get(position, at) for position, at in enumerate(drawn)))
            if found & place:
                break
    return [{name: factors[name][at] for name, at in zip(names, key, strict=True)} for key in _chosen(pool, found)]


def _chosen(pool: Mapping[Key, Offer], pairs: int) -> Iterator[Key]:
    """Yield the keys of the rows that together have all levels, cheap ones above all, and then all pairs."""
    levels = frozenset[tuple[str, int]]().union(*(has for _, _, has in pool.values()))
    while levels:
        key = max(pool, key=lambda each: len(pool[each][2] & levels) / math.sqrt(pool[each][0]))
        yield key
        levels -= pool[key][2]
        pairs &= ~pool[key][1]
    # The number of new pairs of a row only falls: the row on top that still has its number is the best.
    rows = [(-mask.bit_count(), price, place, key, mask) for place, (key, (price, mask, _)) in enumerate(pool.items())]
    heapify(rows)
    while pairs:
        new, price, place, key, mask = rows[0]
        if (left := -(mask & pairs).bit_count()) == new:
            yield key
            pairs &= ~mask
        else:
            heapreplace(rows, (left, price, place, key, mask))
