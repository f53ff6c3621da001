"""Tells results of earlier inputs from results that have the same bits by chance.

A result of few bits, such as one float16 number, may be the same for two draws of the inputs. A wrong one is then no
sign that the kernel returned an earlier result.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from suite.numerics.formats import ulp
from suite.problem.truth import Truth

EVIDENCE = 20.0
"""Bits in which two truths must differ: right results are equal by chance in one of 2^20 pairs of draws."""


def differ(truths: Iterable[Truth], others: Iterable[Truth], dtype: str) -> bool:
    """True if the exact results of two inputs are so different that equal results are no chance.

    truths, others: pieces of the same places. dtype: the type of the results. Elements that are d units in the last
    place apart count log2(1 + d) bits, infinities and NaN none.
    """
    found = 0.0
    for one, other in zip(truths, others, strict=True):
        apart = (one.value.double() - other.value.double()).abs_().div_(ulp(one.value.double(), one.dtype or dtype))
        found += float(apart.add_(1.0).log2_().nan_to_num_(0.0, posinf=0.0).sum())
        if found >= EVIDENCE:
            return True
    return False


def is_one_number(output: torch.Tensor) -> bool:
    """True if all elements are equal, or NaN: such results are equal without being those of other inputs."""
    flat = output.reshape(-1)
    return bool(((flat == flat[:1]) | flat.isnan()).all())
