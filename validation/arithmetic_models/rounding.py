"""Rounding and truncation to the types that kernels use, and the type names of this package."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from suite.numerics.formats import SIGNIFICANT_BITS

CPU = torch.device("cpu")
Array = np.ndarray
Sum = Callable[[Array, Array], Array]
"""A matrix product of two float64 matrices, as a kernel computes it."""
Product = Callable[..., Array]
"""A matrix product of two matrices and, in float8, two scales."""
Map = Callable[[Array], Array]
"""An elementwise function of a float64 array."""


def rounded(x: Array, kind: str) -> Array:
    """Round to the nearest number of a type; `tf32` has 11 significant bits."""
    if kind == "tf32":
        bits = x.astype(np.float32).view(np.int32)
        return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(np.float32).astype(np.float64)
    return torch.from_numpy(np.ascontiguousarray(x)).to(getattr(torch, kind)).double().numpy()


def truncated(x: Array, kind: str) -> Array:
    """Truncate to the number of significant bits of a type."""
    bits = np.asarray(x, np.float64).view(np.int64)
    return (bits & ~((1 << (53 - SIGNIFICANT_BITS[kind])) - 1)).view(np.float64)
