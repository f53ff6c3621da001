"""Random inputs and the cutting of outputs into pieces, shared by the operations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import torch

DEVIATION = {"float8_e4m3fn": 64.0}
"""Standard deviations of normal numbers, 1 elsewhere: 7 of them are the largest float8, few are subnormal."""
BLOCK_ELEMENTS = 2**25
"""Elements of the output judged at a time: 256 MiB for each float64 array that judging needs."""


def generator(seed: int, device: torch.device) -> torch.Generator:
    """The source of every random number of a case. The same seed gives the same inputs on the same kind of device."""
    return torch.Generator(device).manual_seed(seed)


def normal(shape: tuple[int, ...], dtype: str, source: torch.Generator, *, transposed: bool = False) -> torch.Tensor:
    """Normal numbers, drawn in float32 and rounded once; `transposed`: stored with the last axes swapped."""
    stored = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
    drawn = torch.randn(stored, generator=source, device=source.device, dtype=torch.float32)
    if dtype in DEVIATION:
        largest = torch.finfo(getattr(torch, dtype)).max
        drawn = drawn.mul_(DEVIATION[dtype]).clamp_(-largest, largest)
    rounded = drawn.to(getattr(torch, dtype))
    return rounded.transpose(-1, -2) if transposed else rounded


def blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Index tuples that cover an array of `shape` once, each of at most BLOCK_ELEMENTS elements."""
    steps = []
    room = BLOCK_ELEMENTS
    for size in reversed(shape):
        step = max(1, min(size, room))
        steps.append((size, step))
        room //= step
    yield from product(
        *([slice(i, min(i + step, size)) for i in range(0, size, step)] for size, step in reversed(steps))
    )


def block_bytes(shape: tuple[int, ...], arrays: int = 8) -> int:
    """Memory of `arrays` float64 arrays of one block."""
    return 8 * arrays * min(math.prod(shape), BLOCK_ELEMENTS)
