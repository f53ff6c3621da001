"""add_rms_norm: the norm of the sum before and after its rounding is right, and one more rounding is not."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, judge_output

from suite import ops
from suite.numerics.formats import DTYPES
from suite.ops.rms_norm import EPS
from suite.problem.outputs import joined


@pytest.mark.parametrize("shape", [(5, 1), (9, 136), (3, 4104)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_norm_of_the_sum_or_of_the_rounded_sum_is_right(dtype: str, shape: tuple[int, int]) -> None:
    op = ops.get("add_rms_norm")
    case = op.case(shape, dtype)
    x, residual, weight = op.make_inputs(case, 0, CPU)
    exact = x.double() + residual.double()
    rounded = exact.to(x.dtype)

    def ratio(of: torch.Tensor, second: torch.Tensor) -> float:
        y = torch.nn.functional.rms_norm(of, of.shape[1:], weight.to(of.dtype), EPS)
        return judge_output(op, case, joined([y.to(x.dtype), second])).error_ratio

    assert ratio(exact.float(), rounded) < 0.7
    assert ratio(rounded.float(), rounded) < 0.7
    coarse = rounded.to(torch.bfloat16 if dtype == "float32" else torch.float8_e4m3fn)
    assert ratio(coarse.float(), rounded) > 1.2 or shape[1] == 1, "a single number is normed to its sign"
    assert ratio(rounded.float(), coarse.to(x.dtype)) > 1.2
