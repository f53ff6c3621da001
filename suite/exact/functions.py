"""Exponential functions of pairs, to about 2^-75 of the result."""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import torch

from suite.exact.double_double import DoubleDouble, exactly, fast_two_sum, two_product, two_sum

STEPS = 64
"""Powers of two in the table, from 1 up to 2."""
DIGITS = 60
"""Decimal digits of constants."""
SMALL = 2.0**-10
"""Size below which the tanh is a series, since 1 - exp(-2x) cancels."""


def exp(x: DoubleDouble) -> DoubleDouble:
    """Return exp(x) = 2^m 2^(j/64) exp(r), with r at most log(2)/128.

    x - (64 m + j) log(2)/64 is exact in parts of 32 bits of the constant. exp(r) - 1 is a series, whose first two terms
    are pairs.
    """
    table, (first, second, third) = _table(x.high.device), _log_two_parts()
    count = (x.high.clamp(-800.0, 800.0) * (1.0 / (first + second))).round_().nan_to_num_(0.0)
    high, low = two_sum(x.high.clamp(-800.0, 800.0) - count * first, -count * second)
    r, r_low = fast_two_sum(high, low + (x.low - count * third))
    square, square_low = two_product(r, r)
    tail = torch.full_like(r, 1.0 / 40320.0)
    for factorial in (5040.0, 720.0, 120.0, 24.0, 6.0):
        tail.mul_(r).add_(1.0 / factorial)
    tail.mul_(square).mul_(r)
    series = DoubleDouble(r, r_low) + DoubleDouble(square / 2.0, square_low / 2.0) + (tail + r * r_low)
    whole = count.long()
    place, power = whole % STEPS, torch.div(whole, STEPS, rounding_mode="floor")
    base = DoubleDouble(table.high[place], table.low[place])
    found: DoubleDouble = (base + base * series).times_power(power)
    beyond = torch.where(x.high > 800.0, torch.inf, torch.where(x.high < -800.0, 0.0, x.high))
    return found.where((x.high.abs() <= 800.0), exactly(beyond))


def sigmoid(x: DoubleDouble) -> DoubleDouble:
    """Return 1 / (1 + exp(-x)), without an exponential that overflows."""
    negative = x.high < 0.0
    e = exp(x.where(negative, -x))
    return e.where(negative, exactly(torch.ones_like(x.high))) / (e + 1.0)


def tanh(x: DoubleDouble) -> DoubleDouble:
    size = (-x).where(x.high < 0.0, x)
    e = exp(size * -2.0)
    quotient = (1.0 - e) / (e + 1.0)
    square = size * size
    tail = square.high * (2.0 / 15.0 + square.high * (-17.0 / 315.0 + square.high * (62.0 / 2835.0)))
    series = size + size * square * (exactly(tail) - exactly(torch.ones_like(tail)) / 3.0)
    found = series.where(size.high < SMALL, quotient)
    return (-found).where(x.high < 0.0, found)


def softmax(x: DoubleDouble) -> DoubleDouble:
    """Return exp(x) over its sum along the last axis."""
    e = exp(x - x.high.amax(dim=-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


@cache
def _log_two_parts() -> tuple[float, float, float]:
    """Return log(2) / STEPS as a sum: two numbers of 32 bits, and the rest."""
    with localcontext() as context:
        context.prec = DIGITS
        left, parts = Decimal(2).ln() / STEPS, []
        for bits in (38, 70):  # log(2) / 64 is above 2^-7
            part = (left * 2**bits).to_integral_value() / 2**bits
            parts.append(float(part))
            left -= part
        return parts[0], parts[1], float(left)


@cache
def _table(device: torch.device) -> DoubleDouble:
    """Return 2^(j / STEPS) for j from 0."""
    with localcontext() as context:
        context.prec = DIGITS
        powers = [Decimal(2) ** (Decimal(j) / STEPS) for j in range(STEPS)]
        high = [float(each) for each in powers]
        low = [float(each - Decimal(first)) for each, first in zip(powers, high, strict=True)]
    parts = (torch.tensor(each, dtype=torch.float64, device=device) for each in (high, low))
    return DoubleDouble(*parts)
