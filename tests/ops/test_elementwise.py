"""vector_add and sigmoid: their bounds refuse truncation and arithmetic of fewer bits."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, judge_output, out_of_order

from suite import ops
from suite.numerics.formats import DTYPES
from validation import arithmetic_models as arithmetic


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_add_that_truncates_is_wrong(dtype: str) -> None:
    op = ops.get("vector_add")
    case = op.case((10_007,), dtype)
    a, b = op.make_inputs(case, 0, CPU)
    exact = a.double() + b.double()
    rounded = exact.to(a.dtype)
    too_far = rounded.double().abs() > exact.abs()
    integer = torch.int32 if dtype == "float32" else torch.int16
    truncated = torch.where(too_far, (rounded.view(integer) - 1).view(a.dtype), rounded)
    verdict = judge_output(op, case, truncated)
    assert not verdict.agrees
    assert "expected" in verdict.reason


@pytest.mark.parametrize("dtype", DTYPES)
def test_sigmoid(dtype: str) -> None:
    right, wrong = arithmetic.sigmoids(dtype)
    assert out_of_order({name: arithmetic.sigmoid_ratio(f, dtype) for name, f in right.items()}, wrong=False) == {}
    assert out_of_order({name: arithmetic.sigmoid_ratio(f, dtype) for name, f in wrong.items()}, wrong=True) == {}
