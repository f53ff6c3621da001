"""The exact result, in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from suite.numerics.noise import Noise
    from suite.numerics.weak_bound import WeakBound


@dataclass(frozen=True)
class Truth:
    """One piece of the exact result.

    index: the place of the piece in the output, one slice a dimension. value: the exact result there, float64. limit:
    the largest allowed error of each element, float64, of the same shape. noise: the errors of right results on the
    average of many elements; None if only single elements are judged. dtype: the type of the result here, where one
    output joins results of several types; else empty. weak: the reason why the bound of the whole result accepts wrong
    results; None if it does not.

    The value is of an integer type where whole numbers are compared exactly.
    """

    index: tuple[slice, ...]
    value: torch.Tensor
    limit: torch.Tensor
    noise: Noise | None = None
    dtype: str = ""
    weak: WeakBound | None = None
