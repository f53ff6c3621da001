"""Bounds that tell nothing are found, and those of usual operations are not among them."""

from __future__ import annotations

import torch

from suite.numerics.bounds import rounding_limit
from suite.numerics.weak_bound import WeakBound, weak_bound

VALUE = torch.linspace(-2.0, 2.0, 401, dtype=torch.float64)


def found(limit: torch.Tensor, own: torch.Tensor | None = None, value: torch.Tensor = VALUE) -> WeakBound | None:
    return weak_bound(value, limit, own, "float32")


def test_a_bound_of_roundings_tells() -> None:
    limit = rounding_limit(VALUE, "float32")
    assert found(limit) is None
    assert found(limit, own=torch.zeros_like(VALUE)) is None, "an exact reference"
    assert found(limit * 1000.0, own=limit) is None
    assert found(torch.where(VALUE > 1.7, 9.0, limit)) is None, "a few jumps"


def test_a_bound_as_wide_as_the_result_is_weak() -> None:
    weak = found(torch.where(VALUE > 1.0, 0.5, 1e-6))
    assert weak is not None
    assert 0.24 < weak.share < 0.26
    assert weak.reason == "25% of the elements may be off by 25% of the root mean square"


def test_a_bound_that_zeros_pass_is_weak() -> None:
    weak = found(VALUE.abs() + 1e-9)
    assert weak is not None
    assert weak.reason.endswith("zeros would pass")
    assert weak.share == 1.0
    zeros = torch.zeros(5, dtype=torch.float64)
    assert found(zeros + 1e-45, value=zeros) == WeakBound(1.0, "zeros would pass")


def test_a_bound_far_above_the_errors_of_the_reference_is_weak() -> None:
    limit = torch.full_like(VALUE, 1e-3)
    weak = found(limit, own=VALUE.abs() * 1e-8)
    assert weak == WeakBound(1.0, "the reference's own errors are at most 2e-05 of the bound")
    assert found(limit) is None, "a tolerance that the user has stated"
    assert found(limit[:3], own=VALUE[:3] * 0.0, value=VALUE[:3]) is None, "few errors are small by chance"


def test_infinities_and_nan_do_not_count() -> None:
    value = torch.where(VALUE > 1.0, torch.inf, VALUE)
    value[0] = torch.nan
    assert found(torch.where(value.isfinite(), 1e-6, torch.nan), value=value) is None
    assert found(torch.where(value.isfinite(), 9.0, torch.nan), value=value) is not None
    assert found(torch.full((3,), torch.nan), value=torch.full((3,), torch.inf, dtype=torch.float64)) is None
