"""Models of matrix products by order and precision of their sums: right ones in float32, and wrong ones.

All take float64 matrices a (M, K) and b (K, N).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from suite.core.integers import cdiv
from validation.arithmetic_models.rounding import Array, Sum, rounded, truncated


def fused(a: Array, b: Array) -> Array:
    """Add by fused multiply-adds in order, each rounded once to float32."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for column, row in zip(a.T, b, strict=True):
        c = (c + np.multiply.outer(column, row)).astype(np.float32)
    return c


def separate(a: Array, b: Array) -> Array:
    """Round products to float32, then add them in order."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for column, row in zip(a.T, b, strict=True):
        c += np.multiply.outer(column, row).astype(np.float32)
    return c


def blocked(a: Array, b: Array) -> Array:
    """Add sums of 32 terms in order."""
    return sum_of_parts(a, b, 32, fused)


def pairwise(a: Array, b: Array) -> Array:
    """Sum pairwise: the sums of two halves, recursively."""
    if a.shape[1] <= 4:
        return separate(a, b)
    half = a.shape[1] // 2
    return pairwise(a[:, :half], b[:half]) + pairwise(a[:, half:], b[half:])


def split(a: Array, b: Array) -> Array:
    """Split K into four parts, then add their sums."""
    return sum_of_parts(a, b, max(1, cdiv(a.shape[1], 4)), fused)


def sum_of_parts(a: Array, b: Array, step: int, part: Sum) -> Array:
    """Sum parts of `step` terms by `part`, and add them in float32."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], step):
        c += part(a[:, k : k + step], b[k : k + step])
    return c


def tensor_core(depth: int) -> Sum:
    """Sum as a tensor core: `depth` products and the accumulator are added exactly, then truncated to float32."""

    def add(a: Array, b: Array) -> Array:
        c = np.zeros((a.shape[0], b.shape[1]))
        for k in range(0, a.shape[1], depth):
            c = truncated(c + a[:, k : k + depth] @ b[k : k + depth], "float32")
        return c.astype(np.float32)

    return add


SUMS: dict[str, Sum] = {
    "one by one, fused": fused,
    "one by one": separate,
    "blocks of 32": blocked,
    "pairwise": pairwise,
    "4 parts": split,
}
CORES: dict[str, Sum] = {f"tensor core of {depth}": tensor_core(depth) for depth in (4, 8, 16)}


def with_rounded_inputs(kind: str, to: Callable[[Array, str], Array] = rounded) -> Sum:
    """Sum inputs in a narrower type exactly."""
    return lambda a, b: to(a, kind) @ to(b, kind)


def accumulated(kind: str, step: int) -> Sum:
    """Round the sum to `kind` after every `step` terms."""

    def add(a: Array, b: Array) -> Array:
        c = np.zeros((a.shape[0], b.shape[1]))
        for k in range(0, a.shape[1], step):
            c = rounded(c + a[:, k : k + step] @ b[k : k + step], kind)
        return c

    return add


def with_rounded_parts(kind: str, parts: int) -> Sum:
    """Split K into parts whose sums are stored as `kind`."""

    def add(a: Array, b: Array) -> Array:
        step = cdiv(a.shape[1], parts)
        return sum(rounded(a[:, k : k + step] @ b[k : k + step], kind) for k in range(0, a.shape[1], step))

    return add
