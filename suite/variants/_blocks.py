"""Lengths of blocks in which kernels work through a row, and the rests that they forget."""

from __future__ import annotations

from collections.abc import Iterator

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def kept_without_the_rest(length: int) -> Iterator[int]:
    """How many of `length` are left without those after the last whole block, without the last block, or of the first
    block alone; each once, the largest first."""
    rests = {kept for size in SIZES for kept in (length // size * size, length - size, size)}
    yield from sorted((kept for kept in rests if 0 < kept < length), reverse=True)


def were(count: int, noun: str) -> str:
    """`8 columns were`, `column was`."""
    return f"{count} {noun}s were" if count > 1 else f"{noun} was"


def padded(length: int) -> Iterator[int]:
    """How many elements fill `length` up to whole blocks; each number once, the smallest first."""
    yield from sorted({-length % size for size in SIZES} - {0})


def spans(length: int, size: int) -> Iterator[slice]:
    """The blocks of a row."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))
