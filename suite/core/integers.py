"""Integer arithmetic."""

from __future__ import annotations


def cdiv(size: int, by: int) -> int:
    """The quotient rounded up: blocks of `by` elements that cover `size` elements."""
    return -(-size // by)
