"""Variants of the truth: what a result is after a certain mistake. A wrong result is compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from suite.problem.case import Case

Inputs = tuple[torch.Tensor, ...]
Part = tuple[slice, ...]
"""A box of the output: one slice with a beginning and an end for each axis."""


@dataclass(frozen=True)
class Variant:
    """A part of the result as it is after a mistake, exactly.

    mistake: completes "as if ...".
    value, limit: the part, and the largest error allowed of each element: float64, of the same shape.
    fitted: a number in it was found from the wrong result.
    """

    mistake: str
    value: torch.Tensor
    limit: torch.Tensor
    fitted: bool = False


Variants = Callable[[Inputs, Case, Part], Iterator[Variant]]
"""Gives the variants of a part of the result. What a mistake makes of other parts is not computed."""
