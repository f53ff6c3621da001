"""Variants of the truth: the results of known mistakes. A wrong result is compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from suite.problem.case import Case

Inputs = tuple[torch.Tensor, ...]
Part = tuple[slice, ...]
"""A box of the output: one slice with a beginning and an end for each axis."""

UNKNOWN = 1e300
"""Bound of an element for which a variant predicts nothing."""


@dataclass(frozen=True)
class Variant:
    """The exact result of a mistake in a part of the output.

    mistake: completes "as if ...". value, limit: the part, and the largest allowed error of each element, or UNKNOWN:
    float64, of the same shape. fitted: a number in the mistake was estimated from the wrong result.
    """

    mistake: str
    value: torch.Tensor
    limit: torch.Tensor
    fitted: bool = False


Variants = Callable[[Inputs, Case, Part], Iterator[Variant]]
"""Yields the variants of a part of the result, without computing other parts."""
