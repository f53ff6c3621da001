"""Matrix products of pairs by float64 matrix products without any rounding [Ozaki, Ogita, Oishi and Rump, "Error-free
transformations of matrix multiplication", Numer. Algorithms 59, 2012].

Each row of A, divided by the power of two above its largest number, is cut into two slices of so few bits that sums of
K products of slices fit into 53 bits; the same for each column of B. Products of slices are exact then, in any order.
The rest is smaller than the slices by 2^-2b, for slices of b bits, so float64 suffices for its products. The error is
about sqrt(K) 2^-(53 + 2b) times the largest numbers of the row and of the column: 2^-95 for K = 1024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from suite.exact.double_double import DoubleDouble, exactly, times_power


@dataclass(frozen=True)
class Slices:
    """A matrix as (first + second + rest) 2^power, with a power for each row or column."""

    first: torch.Tensor
    second: torch.Tensor
    rest: torch.Tensor
    power: torch.Tensor


def product(a: DoubleDouble | torch.Tensor, b: DoubleDouble | torch.Tensor) -> DoubleDouble:
    """Return A B, of the last two dimensions. Where a float64 product is not finite, neither is the result."""
    a, b = (each if isinstance(each, DoubleDouble) else exactly(each) for each in (a, b))
    plain = a.high @ b.high
    terms = a.high.shape[-1]
    if terms == 0 or plain.numel() == 0:
        return exactly(plain)
    bits = (53 - math.ceil(math.log2(terms))) // 2
    left, right = _slices(a, -1, bits), _slices(b, -2, bits)
    found: DoubleDouble = exactly(left.first @ right.first) + left.first @ right.second + left.second @ right.first
    cut = left.first + left.second
    small = left.rest @ (right.first + right.second + right.rest) + cut @ right.rest
    found = (found + left.second @ right.second + small).times_power(left.power + right.power)
    return found.where(plain.isfinite(), exactly(plain))


def _slices(x: DoubleDouble, dim: int, bits: int) -> Slices:
    """Cut a matrix into slices; `dim` is the one that a product adds over. NaN and infinities count as 0."""
    high, low = (each.nan_to_num(0.0, 0.0, 0.0) for each in (x.high, x.low))
    power = torch.frexp(high.abs().amax(dim=dim, keepdim=True)).exponent
    high, low = times_power(high, -power), times_power(low, -power)
    unit = 2.0**bits
    first = (high * unit).round_().div_(unit)
    high = high - first
    second = (high * unit**2).round_().div_(unit**2)
    return Slices(first, second, (high - second) + low, power)
