"""float8: tensor-core sums, which keep few bits, and scales of operands. docs/agreement.md has the derivation."""

from __future__ import annotations

import math

import torch

from suite.numerics.bounds import MMA_DEPTH, deviations, limit, sum_variance
from suite.numerics.formats import half_smallest, unit_roundoff

FLOAT8 = "float8_e4m3fn"
MMA_WIDTH = 32
"""Largest number of float8 products that a tensor core adds in one step."""
FLOAT8_SUM_BITS = 14
"""Significant bits of a sum of float8 products in a tensor core (docs/agreement.md)."""
PROMOTED_TERMS = 128
"""Largest number of products of such a sum, in the precision `promoted`, before it is added to others in float32."""


def scales(count: int, power: int, seed: int, device: torch.device) -> list[torch.Tensor]:
    """Draw float32 scales of operands, shape (), from 1.25 to 1.75 times 2^power; none is a power of two."""
    drawn = torch.rand(count, generator=torch.Generator().manual_seed(seed)) / 2 + 1.25
    return [each.clone() for each in (drawn * 2.0**power).to(device)]


def sum_losses(
    value: torch.Tensor, spread_squared: torch.Tensor, terms: int, chain: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the errors of tensor-core sums of `terms` float8 products in chains of `chain`: mean and variance.

    value: the sums. spread_squared: the sums of the squares of the products. Both float64.

    Each step aligns up to MMA_WIDTH products and the accumulator to the largest of them, and truncates first these and
    then their sum to FLOAT8_SUM_BITS. With u = 2^-14 each truncation loses up to 2u of the largest, whose square is at
    most the sum of the squares of the partial sum and of the step's products. `partial` is the mean square of the
    partial sums of all chains: random walks as in `sum_variance`, to totals whose squares add up to spread^2, and
    value^2 over the number of chains.

    1. Products and accumulators lose an amount that is uniform within 2u of the largest, towards zero. Among n terms
       with sum c, those with the sign of c are at most sqrt(n) c / spread more than the others; each loses u on
       average.
    2. Sums are truncated as in tensor cores of other types (`sum_shift`), with this u.
    """
    steps = math.ceil(chain / MMA_DEPTH[FLOAT8])
    share = chain / max(terms, 1)
    u = 2.0**-FLOAT8_SUM_BITS
    partial = spread_squared + (spread_squared * (1.0 - share) + value.square() * share) / 3.0
    losses = partial * ((chain + steps) * 4.0 + steps) + spread_squared * (4.0 * (min(chain, MMA_WIDTH) + 1))
    variance = losses * (u**2 / 3.0) + spread_squared * ((u * steps) ** 2 / 12.0)
    in_spreads = torch.where(spread_squared > 0, partial / spread_squared, 0.0).sqrt()
    return value.abs() * (in_spreads * (u * math.sqrt(chain)) + u * (steps + 1) / 2.0), variance


def float8_limit(
    value: torch.Tensor, spread_squared: torch.Tensor, grain: float, terms: int, count: int, dtype: str, precision: str
) -> torch.Tensor:
    """Return the bound for c = scale times the sum over `terms` of float8 products a_k b_k, in chains of a tensor core.

    value: c. spread_squared: sum of (scale a_k b_k)^2. Both float64. grain: every scaled product is a multiple of this
    number. count: outputs. dtype: the output's type.

    1. Each chain has the errors of `sum_losses`.
    2. If no partial sum reaches 2^14 grains, all sums are exact and nothing is lost.
    3. Chains, or all products, are added in float32, and multiplied by the scale, or by two scales.

    In the worst case the n - 1 smaller products and the n / 2 sums, twice each, lose 2u of |a||b| <= sqrt(n) spread.
    """
    chain = terms if precision == "fast" else min(terms, PROMOTED_TERMS)
    u, fine = 2.0**-FLOAT8_SUM_BITS, unit_roundoff("float32")
    systematic, variance = sum_losses(value, spread_squared, terms, chain)
    share = chain / max(terms, 1)
    largest = value.abs() * share + spread_squared.sqrt() * (deviations(count * terms) * math.sqrt(share))
    lossy = ~(largest < 2.0**FLOAT8_SUM_BITS * grain)
    added = sum_variance(value, spread_squared, terms, None)
    probable = torch.where(lossy, variance, 0.0).add_(added).sqrt_().mul_(deviations(count))
    probable += torch.where(lossy, systematic, 0.0)
    worst = 4.0 * u * (chain - 1) + fine * (terms - 1)
    greatest = spread_squared.sqrt() * (worst * math.sqrt(terms)) + terms * half_smallest("float32")
    return limit(torch.minimum(probable, greatest) + value.abs() * (2.0 * fine), value, dtype)
