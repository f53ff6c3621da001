"""Lengths of the blocks in which kernels process a row, and of the remainders that they may leave out."""

from __future__ import annotations

from collections.abc import Iterator

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def shortened_lengths(length: int) -> Iterator[int]:
    """Yield the lengths after mistakes with blocks, each once, the largest first.

    The mistakes keep whole blocks only, lose one block, or keep only the first block.
    """
    rests = {kept for size in SIZES for kept in (length // size * size, length - size, size)}
    yield from sorted((kept for kept in rests if 0 < kept < length), reverse=True)


def count_were(count: int, noun: str) -> str:
    """Write a count with its verb: `8 columns were`, `column was`."""
    return f"{count} {noun}s were" if count > 1 else f"{noun} was"


def padding_lengths(length: int, largest: int = SIZES[-1]) -> Iterator[int]:
    """Yield the numbers of elements that fill `length` up to whole blocks; each once, the smallest first.

    largest: the size of the largest block.
    """
    sizes = [*SIZES, *(2**power for power in range(SIZES[-1].bit_length(), largest.bit_length()))]
    yield from sorted({-length % size for size in sizes} - {0})


def spans(length: int, size: int) -> Iterator[slice]:
    """Yield the blocks of a row."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))
