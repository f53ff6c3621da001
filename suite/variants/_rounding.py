"""Rounds float64 numbers to other formats, returning float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suite.numerics.formats import SIGNIFICANT_BITS

TF32_UNUSED = 13
"""Bits of a float32 significand that tf32 lacks."""


def rounded(x: torch.Tensor, kind: str) -> torch.Tensor:
    """Round float64 numbers by way of float32 to `float32`, `float16`, `bfloat16` or `tf32` (ties away from zero)."""
    if kind != "tf32":
        return x.float().to(getattr(torch, kind)).double()
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + (1 << TF32_UNUSED - 1)) & -(1 << TF32_UNUSED)).view(torch.float32).double()


def in_parts(x: torch.Tensor, parts: int = 3) -> torch.Tensor:
    """The sum of `parts` bfloat16 numbers that approximate float64 numbers, each the rounded rest."""
    found = torch.zeros_like(x)
    for _ in range(parts):
        found = found + rounded(x - found, "bfloat16")
    return found


def truncated(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Truncate float64 numbers to the first `bits` significant bits of float32."""
    whole = x.float().contiguous().view(torch.int32)
    return (whole & -(1 << 24 - bits)).view(torch.float32).double()


def coarser_formats(dtype: str) -> Iterator[str]:
    """Yield the 16-bit formats with fewer digits or less range than `dtype`."""
    if dtype != "float16":
        yield "float16"
    if SIGNIFICANT_BITS[dtype] > SIGNIFICANT_BITS["bfloat16"]:
        yield "bfloat16"


def sixteen_bit_formats(dtype: str) -> tuple[str, ...]:
    """Return the 16-bit formats that intermediate results may be rounded to: that of the inputs, or both."""
    return (dtype,) if dtype in ("float16", "bfloat16") else ("float16", "bfloat16")
