"""Tensor cores in float64: exact products, sums truncated to float32."""

from __future__ import annotations

import torch


def truncated(x: torch.Tensor) -> torch.Tensor:
    """x truncated to 24 significant bits, like sums in tensor cores."""
    fraction, exponent = torch.frexp(x)
    return torch.ldexp(torch.trunc(fraction * 2.0**24), exponent - 24)


def tensor_core(a: torch.Tensor, b: torch.Tensor, acc: torch.Tensor) -> torch.Tensor:
    """acc + a b^T, 16 exact products at a time."""
    for k in range(0, a.shape[1], 16):
        acc = truncated(acc + a[:, k : k + 16] @ b[:, k : k + 16].T)
    return acc
