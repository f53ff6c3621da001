"""Finds bounds that are too wide to tell right results from wrong ones, by the errors that they allow."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from suite.numerics.bounds import rounding_limit

WIDE = 0.25
"""A bound above this share of the root mean square of the result is wide."""
MANY = 0.1
"""A bound is weak if more than this share of the elements have a wide one."""
TINY = 1e-4
"""A bound is weak if the reference's own errors are all below this share of it ..."""
ROUNDINGS = 16.0
"""... though it allows more than this number of roundings of the result in MANY elements ..."""
FEW = 16
"""... and there are at least so many elements: a single error is small by chance."""


@dataclass(frozen=True)
class WeakBound:
    """A bound that accepts wrong results. share: of the elements whose bound is too wide, 0 to 1. reason: the errors
    that it allows."""

    share: float
    reason: str


def weak_bound(value: torch.Tensor, limit: torch.Tensor, own: torch.Tensor | None, dtype: str) -> WeakBound | None:
    """Return why a bound is weak; None if it is not.

    value: the exact result, float64. limit: its bound. own: the errors of the reference in the case's type, where they
    are known and the bound was not stated by the user. dtype: the type of the result.
    """
    finite = value.isfinite()
    count = int(finite.sum())
    if count == 0:
        return None
    size = torch.where(finite, value, 0.0).square_().sum().div_(count).sqrt_()
    wide = float((finite & (limit > WIDE * size)).sum()) / count
    found = []
    if wide > MANY and size > 0.0:
        allowed = f"by {_percent(WIDE)} of the root mean square"
        found.append(WeakBound(wide, f"{_percent(wide)} of the elements may be off {allowed}"))
    if count == value.numel() and bool((value.abs() <= limit).all()):
        found.append(WeakBound(1.0, "zeros would pass"))
    if own is not None and count >= FEW:
        loose = float((finite & (limit > ROUNDINGS * rounding_limit(value, dtype))).sum()) / count
        ratio = float(torch.where(finite & (limit > 0.0), own / limit, 0.0).max())
        if loose > MANY and ratio < TINY:
            found.append(WeakBound(loose, f"the reference's own errors are at most {ratio:.1g} of the bound"))
    return WeakBound(max(each.share for each in found), ", ".join(each.reason for each in found)) if found else None


def _percent(share: float) -> str:
    """A share in percent, never rounded to 0 or to 100."""
    return f"{min(max(100.0 * share, 1.0), 99.0 if share < 1.0 else 100.0):.0f}%"
