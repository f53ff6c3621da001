"""Numbers of other formats, in float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suite.numerics.formats import SIGNIFICANT_BITS

TF32_UNUSED = 13
"""Bits of a float32 number that tf32 lacks."""


def rounded(x: torch.Tensor, kind: str) -> torch.Tensor:
    """`x`, float64, rounded by way of float32 to `float32`, `float16`, `bfloat16` or `tf32` (ties away from zero)."""
    if kind != "tf32":
        return x.float().to(getattr(torch, kind)).double()
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + (1 << TF32_UNUSED - 1)) & -(1 << TF32_UNUSED)).view(torch.float32).double()


def truncated(x: torch.Tensor, bits: int) -> torch.Tensor:
    """`x`, float64, cut to so many significant bits of a float32 number."""
    whole = x.float().contiguous().view(torch.int32)
    return (whole & -(1 << 24 - bits)).view(torch.float32).double()


def coarser(dtype: str) -> Iterator[str]:
    """The formats of 16 bits that have fewer digits or less range than `dtype`."""
    if dtype != "float16":
        yield "float16"
    if SIGNIFICANT_BITS[dtype] > SIGNIFICANT_BITS["bfloat16"]:
        yield "bfloat16"


def sixteen(dtype: str) -> tuple[str, ...]:
    """The formats of 16 bits that intermediate results may be rounded to: that of the inputs, or both."""
    return (dtype,) if dtype in ("float16", "bfloat16") else ("float16", "bfloat16")
