"""The errors that right arithmetic leaves in many results, for the statistics of `suite/checking/aggregate.py`.

A bound is for the largest error of all results: `deviations(count)` standard deviations and a margin. The average of
many errors is far smaller, so an error of all results shows in an average long before one result exceeds its bound.
An operation describes the errors of a sample of its results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from suite.numerics.sampled import SAMPLE


@dataclass(frozen=True)
class Noise:
    """The errors of the results at `sample(shape)` of a piece, before their last rounding.

    systematic: the largest error that may have the same sign in all results. variance: of the errors of mean zero. Both
    float64, a number for each sampled result. independent: the number of independent errors of the whole output: of its
    results, or of the roundings behind them; at most the number of results.
    """

    systematic: torch.Tensor
    variance: torch.Tensor
    independent: int


@lru_cache(maxsize=8)
def sample(shape: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the indices of evenly spaced elements of an array: about SAMPLE, or all of a smaller one.

    The step divides no dimension, so the elements lie in all rows and columns. The last results are kept, since each
    draw of a case asks for the same several times.
    """
    count = math.prod(shape)
    step = max(1, count // SAMPLE)
    while step > 1 and any(math.gcd(step, size) > 1 for size in shape):
        step += 1
    flat = torch.arange(0, count, step, device=device)
    found = []
    for size in reversed(shape):
        found.append(flat % max(size, 1))
        flat = flat // max(size, 1)
    return tuple(reversed(found))
