"""Tensor cores in float64: exact products, sums truncated to float32."""

from __future__ import annotations

import torch


def truncated(x: torch.Tensor) -> torch.Tensor:
    """x, float64, truncated to 24 significant bits, like sums in tensor cores: 29 of its 53 bits are cleared."""
    return (x.view(torch.int64) & -(1 << 29)).view(torch.float64)


def tensor_core(a: torch.Tensor, b: torch.Tensor, acc: torch.Tensor) -> torch.Tensor:
    """acc + a b^T of the last two dimensions, 16 exact products at a time."""
    for k in range(0, a.shape[-1], 16):
        acc = truncated(acc + a[..., k : k + 16] @ b[..., k : k + 16].mT)
    return acc
