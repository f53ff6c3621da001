"""Cuts an output into blocks, so that the float64 arrays of the judge fit in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

BLOCK_ELEMENTS = 2**25
"""Elements of the output judged at a time: 256 MiB for each float64 array."""


def blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield indices of at most BLOCK_ELEMENTS elements each that cover an array once. They may cut a row."""
    steps = []
    room = BLOCK_ELEMENTS
    for size in reversed(shape):
        step = max(1, min(size, room))
        steps.append((size, step))
        room //= step
    yield from product(
        *([slice(i, min(i + step, size)) for i in range(0, size, step)] for size, step in reversed(steps))
    )


def rows_per_block(columns: int, share: int = 1) -> int:
    """Return the number of whole rows in a block of BLOCK_ELEMENTS / `share` elements; at least one."""
    return max(1, BLOCK_ELEMENTS // share // max(1, columns))


def block_bytes(shape: tuple[int, ...], arrays: int = 8) -> int:
    """Return the memory of `arrays` float64 arrays of one block of `blocks(shape)`, in bytes."""
    return 8 * arrays * min(math.prod(shape), BLOCK_ELEMENTS)
