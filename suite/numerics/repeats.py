"""Counts equal terms of a sum and equal rows of operands, whose rounding errors are not independent.

While partial sums are of one size, adding a term makes an error that depends on the term's last digits alone. Equal
terms have equal errors then, and terms of opposite sign have opposite ones. The errors of m equal terms add up to one
error m times as large. If the terms follow each other, the partial sums grow as if by one step m times as large.
"""

from __future__ import annotations

import math
from itertools import product

import torch

MOST, FEWEST, TOGETHER = 4096, 64, 2**16
"""Terms of a sum that are compared: the most and the fewest, and the most of all sums together."""
CHANCE = 5.0
"""Deviations by which equal terms must exceed those of random signs: few bits have equal terms by chance."""


def repeats(terms: torch.Tensor, count: int | None = None) -> torch.Tensor:
    """Return how many terms of each sum are equal: 1 if they differ or if signs cancel their errors; (rows, 1) float64.

    The mean over the terms counts: a sum of n equal terms has n, one of n/m different ones that occur m times has m.

    terms: (rows, N). count: the number of terms of a sum, of which these are a sample; None for all of them.
    """
    rows, columns = terms.shape
    if not terms.numel():
        return torch.ones((rows, 1), dtype=torch.float64, device=terms.device)
    some = max(FEWEST, min(MOST, TOGETHER // rows))
    sample = terms[:, :: math.ceil(columns / some)]
    scale = max((count or columns) - 1, 0) / max(sample.shape[1] - 1, 1)
    at_once = max(1, TOGETHER // sample.shape[1])
    return torch.cat([_repeats(sample[row : row + at_once].double(), scale) for row in range(0, rows, at_once)])


def repeats_of_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor | None:
    """Return how many terms of each sum in A B are equal, (M, N); None if no sum has equal terms.

    Terms are equal if both factors repeat along K. If they do not repeat at the same places, the count is too large.
    """
    found = torch.minimum(repeats(a), repeats(b.mT).mT)
    return found if bool((found > 1.0).any()) else None


def marks(*operands: torch.Tensor) -> torch.Tensor:
    """Return a number for each row of operands (..., N, D), float32. Rows that are equal in all operands get the same.

    The operands agree in all dimensions but D. Rows that differ hardly ever get the same number.
    """
    first = operands[0]
    found = torch.zeros(first.shape[:-1], dtype=torch.float64, device=first.device)
    for place, x in enumerate(operands):
        weights = torch.linspace(1.0 + place, 2.0 + place, x.shape[-1], dtype=torch.float64, device=x.device).sqrt_()
        for index in product(*map(range, x.shape[:-2])):
            found[index] += x[index].double() @ weights
    return found.abs_().float()  # the last digits depend on a row's place in the product


def distinct(*operands: torch.Tensor) -> int:
    """Return how many rows of operands (..., N, D) differ: errors of equal rows are equal."""
    return int(marks(*operands).unique().numel())


def _repeats(found: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the result of `repeats` for some rows of a sample, of sums that have `scale` times as many terms."""
    order = found.abs().sort(dim=1)
    new = torch.ones_like(found, dtype=torch.bool)
    new[:, 1:] = order.values.diff(dim=1) != 0.0
    if bool(new.all()):
        return torch.ones((found.shape[0], 1), dtype=torch.float64, device=found.device)
    group = new.reshape(-1).cumsum(0) - 1
    sums, sizes = (torch.zeros(found.numel(), dtype=torch.float64, device=found.device) for _ in range(2))
    sums.index_add_(0, group, found.sign().gather(1, order.indices).reshape(-1))
    sizes.index_add_(0, group, torch.ones_like(sums))
    of_group = sums[group].square() / sizes[group], sizes[group]
    equal, chance = (each.view_as(found).mean(dim=1, keepdim=True) for each in of_group)
    by_chance = equal - 1.0 <= CHANCE * (2.0 * chance / found.shape[1]).sqrt()
    return (equal - 1.0).masked_fill_(by_chance, 0.0).mul_(scale).add_(1.0).nan_to_num_(1.0)
