"""Integer arithmetic."""

from __future__ import annotations

from collections.abc import Sequence


def cdiv(size: int, by: int) -> int:
    """The quotient rounded up: blocks of `by` elements that cover `size` elements."""
    return -(-size // by)


def index_at(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of an element of an array, by its place in row-major order.

    torch.unravel_index would import sympy, which takes 0.3 s.
    """
    index = []
    for size in reversed(shape):
        place, at = divmod(place, size)
        index.append(at)
    return tuple(reversed(index))
