"""Numbers of two float64 parts, of which the second is below the last place of the first: about 106 significant bits.

Sums and products of two float64 numbers are exact in such a pair [Dekker 1971, Knuth 1969]. The operations on pairs
are those of Joldes, Muller and Popescu, "Tight and rigorous error bounds for basic building blocks of double-word
arithmetic", ACM TOMS 44, 2017: their relative errors are a few 2^-104.

Torch has no fused multiply-add, so a product is split by masking bits, which cannot overflow. A pair that is not finite
has a low part of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch

BLOCK_ELEMENTS = 1 << 22
"""Elements computed at a time, since each operation on pairs makes many arrays."""
UPPER_BITS = -(1 << 27)
"""Mask of the sign, the exponent and the first 26 bits of a float64 number."""


def two_sum(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a + b rounded, and its rounding error."""
    total = a + b
    of_b = total - a
    return total, ((a - (total - of_b)) + (b - of_b)).nan_to_num_(0.0, 0.0, 0.0)


def fast_two_sum(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a + b rounded, and its rounding error, if |a| >= |b|."""
    total = a + b
    return total, (b - (total - a)).nan_to_num_(0.0, 0.0, 0.0)


def two_product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a b rounded, and its rounding error to 2^-105 of a b."""
    product = a * b
    a_high, b_high = (_upper(each) for each in (a, b))
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error.nan_to_num_(0.0, 0.0, 0.0)


def _upper(x: torch.Tensor) -> torch.Tensor:
    return (x.contiguous().view(torch.int64) & UPPER_BITS).view(torch.float64)


@dataclass(frozen=True)
class DoubleDouble:
    """The sum of two float64 tensors of one shape; |low| is at most half a unit in the last place of high."""

    high: torch.Tensor
    low: torch.Tensor

    def __add__(self, other: Number) -> DoubleDouble:
        other = wide(other, self.high)
        high, error = two_sum(self.high, other.high)
        low, least = two_sum(self.low, other.low)
        high, low = fast_two_sum(high, error + low)
        return DoubleDouble(*fast_two_sum(high, least + low))

    def __neg__(self) -> DoubleDouble:
        return DoubleDouble(-self.high, -self.low)

    def __sub__(self, other: Number) -> DoubleDouble:
        return self + -wide(other, self.high)

    def __rsub__(self, other: float) -> DoubleDouble:
        return -self + other

    def __mul__(self, other: Number) -> DoubleDouble:
        other = wide(other, self.high)
        high, low = two_product(self.high, other.high)
        cross = (self.high * other.low + self.low * other.high).nan_to_num_(0.0, 0.0, 0.0)
        return DoubleDouble(*fast_two_sum(high, low + cross))

    def __truediv__(self, other: Number) -> DoubleDouble:
        other = wide(other, self.high)
        first = self.high / other.high
        rest = self - other * exactly(first)
        second = (rest.high / other.high).nan_to_num_(0.0, 0.0, 0.0)
        rest = rest - other * exactly(second)
        third = (rest.high / other.high).nan_to_num_(0.0, 0.0, 0.0)
        high, low = fast_two_sum(first, second)
        return DoubleDouble(*fast_two_sum(high, low + third))

    def __getitem__(self, place: tuple[slice | int | None, ...] | slice | int) -> DoubleDouble:
        return DoubleDouble(self.high[place], self.low[place])

    @property
    def mT(self) -> DoubleDouble:  # noqa: N802
        return self.transposed(-2, -1)

    def transposed(self, first: int, second: int) -> DoubleDouble:
        return DoubleDouble(self.high.transpose(first, second), self.low.transpose(first, second))

    def finite(self) -> DoubleDouble:
        """Return these numbers, with 0 for NaN and infinities."""
        return DoubleDouble(self.high.nan_to_num(0.0, 0.0, 0.0), self.low)

    def view(self, *shape: int) -> DoubleDouble:
        return DoubleDouble(self.high.reshape(shape), self.low.reshape(shape))

    def masked_fill(self, mask: torch.Tensor, value: float) -> DoubleDouble:
        return DoubleDouble(self.high.masked_fill(mask, value), self.low.masked_fill(mask, 0.0))

    def where(self, condition: torch.Tensor, other: DoubleDouble) -> DoubleDouble:
        """Return these numbers where `condition`, else the other ones."""
        return DoubleDouble(torch.where(condition, self.high, other.high), torch.where(condition, self.low, other.low))

    def times_power(self, power: torch.Tensor | int) -> DoubleDouble:
        """Return these numbers times 2^power. It is exact above the subnormal range."""
        high, low = times_power(self.high, power), times_power(self.low, power)
        return DoubleDouble(high, low.masked_fill_(high.isinf(), 0.0))

    def sum(self, dim: int, *, keepdim: bool = False) -> DoubleDouble:
        """Return the sum along an axis, by halves."""
        left = self
        count = left.high.shape[dim]
        if count == 0:
            zero = left.high.sum(dim, keepdim=True)
            left = DoubleDouble(zero, torch.zeros_like(zero))
        while count > 1:
            half = count // 2
            first, second, rest = (
                DoubleDouble(left.high.narrow(dim, start, size), left.low.narrow(dim, start, size))
                for start, size in ((0, half), (half, half), (2 * half, count - 2 * half))
            )
            left, count = concatenated([first + second, rest], dim), count - half
        return left if keepdim else DoubleDouble(left.high.squeeze(dim), left.low.squeeze(dim))

    def sqrt(self) -> DoubleDouble:
        root = self.high.sqrt()
        rest = self - DoubleDouble(*two_product(root, root))
        return DoubleDouble(*fast_two_sum(root, (rest.high / (2.0 * root)).nan_to_num_(0.0, 0.0, 0.0)))


Number: TypeAlias = DoubleDouble | torch.Tensor | float


def exactly(x: torch.Tensor) -> DoubleDouble:
    """Return float64 numbers as pairs."""
    return DoubleDouble(x, torch.zeros_like(x))


def wide(x: Number, like: torch.Tensor) -> DoubleDouble:
    """Return a number as a pair on the device of `like`."""
    if isinstance(x, DoubleDouble):
        return x
    return exactly(x if isinstance(x, torch.Tensor) else torch.as_tensor(x, dtype=torch.float64, device=like.device))


def concatenated(parts: list[DoubleDouble], dim: int = 0) -> DoubleDouble:
    return DoubleDouble(torch.cat([each.high for each in parts], dim), torch.cat([each.low for each in parts], dim))


def times_power(x: torch.Tensor, power: torch.Tensor | int) -> torch.Tensor:
    """Return x 2^power by two factors, since 2^power may be beyond float64."""
    power = torch.as_tensor(power, dtype=torch.int64, device=x.device)
    half = power >> 1
    return x * _power_of_two(half) * _power_of_two(power - half)


def _power_of_two(power: torch.Tensor) -> torch.Tensor:
    return (power.clamp(-1022, 1023) + 1023 << 52).view(torch.float64)
