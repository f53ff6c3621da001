"""quantize: codes are exact unless the error of a scale decides, and scales have the error of a quotient."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, judge_output

from suite import ops
from suite.checking.judge import Verdict
from suite.numerics.formats import DTYPES
from suite.ops.quantize import LARGEST, codes_truth
from suite.problem.outputs import joined

OP = ops.get("quantize")
ROUNDOFF = 2.0**-24


def verdict(x: torch.Tensor, to: str, scale_error: float = 0.0, quotient_error: float = 0.0) -> Verdict:
    """The verdict on codes of x by rows, with relative errors of the scales and of the quotients."""
    scales = x.double().abs().amax(dim=1, keepdim=True) / LARGEST[to] * (1.0 + scale_error)
    quotients = x.double() / scales * (1.0 + quotient_error)
    codes = quotients.round() if to == "int8" else quotients.float()
    case = OP.case(tuple(x.shape), str(x.dtype).removeprefix("torch."), to=to)
    return judge_output(OP, case, joined([codes.to(getattr(torch, to)), scales.float()]))


@pytest.mark.parametrize("to", LARGEST)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_errors_of_scale_and_quotient_are_right_and_larger_ones_are_not(dtype: str, to: str) -> None:
    (x,) = OP.make_inputs(OP.case((16, 1025), dtype, to=to), 0, CPU)
    for error in (0.0, 4.0 * ROUNDOFF, -4.0 * ROUNDOFF):
        assert verdict(x, to, scale_error=error).error_ratio < 0.7
        assert verdict(x, to, quotient_error=error).error_ratio < 0.7
    assert verdict(x, to, scale_error=2.0**-20).error_ratio > 1.2
    wrong = verdict(x, to, quotient_error=2.0**-10)
    assert not wrong.agrees
    assert wrong.reason.startswith("value: at [")


@pytest.mark.parametrize("to", LARGEST)
def test_both_neighbours_of_a_tie_are_right_and_no_third_code(to: str) -> None:
    value, limit = codes_truth(torch.tensor([2.5, 2.25, 34.0, 0.5 * 2.0**-9], dtype=torch.float64), to)
    near = limit > 0
    assert near.tolist() == ([True, False, False, False] if to == "int8" else [False, False, True, True])
    step = 1.0 if to == "int8" else torch.tensor([4.0, 2.0**-9], dtype=torch.float64)
    for sign in (1.0, -1.0):
        assert bool(((value[near] + sign * 0.5 * step - value[near]).abs() <= limit[near]).all())
        assert bool(((value[near] + sign * 1.5 * step - value[near]).abs() > limit[near]).all())
    assert value[~near].tolist() == ([2.0, 34.0, 0.0] if to == "int8" else [2.5, 2.25])


@pytest.mark.parametrize("group", ["row", "128", "128x128"])
def test_a_group_of_zeros_has_the_least_scale_and_codes_of_0(group: str) -> None:
    case = OP.case((3, 200), group=group)
    codes, scales = OP.truth((torch.zeros(3, 200),), case)
    assert not codes.value.any()
    assert set(scales.value.tolist()) == {2.0**-126}
