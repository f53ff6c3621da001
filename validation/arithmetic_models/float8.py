"""Models of float8 matrix products with scales."""

from __future__ import annotations

import numpy as np
import torch

from suite.numerics.float8 import FLOAT8_SUM_BITS
from validation.arithmetic_models.rounding import Array, Product, Sum, rounded
from validation.arithmetic_models.sums import SUMS, accumulated, fused, sum_of_parts

FAST_SHOWS = 1024
"""Smallest K at which sums that are not promoted exceed the bound."""


def aligned(depth: int) -> Sum:
    """Sum as a float8 tensor core: `depth` products and the accumulator are aligned to the largest of them. Each of
    them, and their sum, is truncated to 13 bits after the leading one."""

    def add(a: Array, b: Array) -> Array:
        c = np.zeros((a.shape[0], b.shape[1]))
        for k in range(0, a.shape[1], depth):
            products = a[:, None, k : k + depth] * b.T[None, :, k : k + depth]
            last = _last_place(np.maximum(np.abs(products).max(2), np.abs(c)))
            c = np.trunc(c / last) * last + np.trunc(products / last[..., None]).sum(2) * last
            c = np.trunc(c / _last_place(c)) * _last_place(c)
        return c

    return add


def _last_place(x: Array) -> Array:
    return np.ldexp(1.0, np.frexp(x)[1] - FLOAT8_SUM_BITS)


def promoted(depth: int, terms: int) -> Sum:
    """Sum `terms` terms at a time by a tensor core, and add these sums in float32."""
    return lambda a, b: sum_of_parts(a, b, terms, lambda *part: aligned(depth)(*part).astype(np.float32))


def scaled(add: Sum) -> Product:
    """Multiply the sum by the product of the scales, in float32."""
    return lambda a, b, scale_a, scale_b: add(a, b).astype(np.float32) * (scale_a * scale_b)


def right_float8(precision: str) -> dict[str, Product]:
    """Return right products in `precision` (`promoted` or `fast`), by name."""
    found = {name: scaled(add) for name, add in SUMS.items()}
    found["one scale after the other"] = lambda a, b, x, y: fused(a, b) * x * y
    for depth, terms in ((16, 128), (32, 128), (32, 64)):
        found[f"tensor core of {depth}, promoted every {terms}"] = scaled(promoted(depth, terms))
    if precision == "fast":
        found |= {f"tensor core of {depth}": scaled(aligned(depth)) for depth in (16, 32)}
    return found


def wrong_float8(precision: str, k: int) -> dict[str, Product]:
    """Return products with one error that shows at K = `k`, by name."""

    def e5m2(x: Array) -> Array:
        return torch.from_numpy(x).to(torch.float8_e4m3fn).view(torch.float8_e5m2).double().numpy()

    found: dict[str, Product] = {
        "scale forgotten": lambda a, b, x, y: a @ b * x,
        "one scale twice": lambda a, b, x, y: a @ b * x * x,
        "read as float8_e5m2": lambda a, b, x, y: np.nan_to_num(e5m2(a)) @ np.nan_to_num(e5m2(b)) * x * y,
        "rounded to float16": lambda a, b, x, y: rounded(a @ b * x * y, "float16"),
    }
    if 1 < k <= 128 or (k > 1 and precision == "fast"):  # with more terms the unscaled sums are of similar size
        found["rounded before it is scaled"] = lambda a, b, x, y: rounded(a @ b, "bfloat16") * x * y
    if k > 1:
        found["last term missing"] = lambda a, b, x, y: a[:, :-1] @ b[:-1] * x * y
        found["bfloat16 sums"] = lambda a, b, x, y: accumulated("bfloat16", max(1, min(32, k // 2)))(a, b) * x * y
    if precision == "promoted" and k >= FAST_SHOWS:
        found |= {f"fast, tensor core of {depth}": scaled(aligned(depth)) for depth in (16, 32)}
    return found
