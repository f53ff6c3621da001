"""Variants of matrix_add: other strides, other digits."""

from suite.variants._addition import variants

__all__ = ["variants"]
