"""silu_mul_quantize and rms_norm_quantize: the errors of the number before its code are right, larger ones are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from judging import CPU, judge_output

from suite import ops
from suite.checking.judge import Verdict
from suite.numerics.formats import DTYPES
from suite.ops.quantize import LARGEST, codes_truth, error_of_largest, scales_of
from suite.problem.outputs import joined

OPERATIONS = ("silu_mul_quantize", "rms_norm_quantize")
ROUNDOFF = 2.0**-24


def verdict(name: str, dtype: str, to: str, changed: Callable[[torch.Tensor], torch.Tensor]) -> Verdict:
    """The verdict on codes of rows of the numbers, after `changed`."""
    op = ops.get(name)
    case = op.case((16, 1025), dtype, to=to)
    y = changed(op.numbers(op.make_inputs(case, 0, CPU), case, slice(0, 16))[0])
    scales = scales_of(y.abs().amax(dim=1, keepdim=True), to).float()
    quotients = y / scales.double()
    codes = quotients.round() if to == "int8" else quotients.float()
    return judge_output(op, case, joined([codes.to(getattr(torch, to)), scales]))


@pytest.mark.parametrize("to", LARGEST)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_number_in_float32_is_right_and_one_in_fewer_bits_is_not(name: str, dtype: str, to: str) -> None:
    signs = torch.randint(0, 2, (16, 1025), generator=torch.Generator().manual_seed(0)) * 2 - 1
    for units in (0.0, 3.0):
        assert verdict(name, dtype, to, lambda y, e=units: y * (1.0 + e * ROUNDOFF * signs)).error_ratio < 0.7
    assert not verdict(name, dtype, to, lambda y: y.bfloat16().double()).agrees
    assert not verdict(name, dtype, to, lambda y: y.half().double()).agrees
    assert not verdict(name, dtype, to, lambda y: y * (1.0 + 2.0**-14 * signs)).agrees


@pytest.mark.parametrize("to", LARGEST)
def test_an_error_admits_the_codes_that_it_reaches_and_no_other(to: str) -> None:
    quotient = torch.tensor([34.0, 34.0, 37.4, 0.0], dtype=torch.float64)
    error = torch.tensor([0.1, 5.0, 1e-4, 1e-9], dtype=torch.float64)
    value, limit = codes_truth(quotient, to, error)
    codes = torch.arange(0, 128, dtype=torch.float64).float()
    codes = (codes if to == "int8" else codes.to(torch.float8_e4m3fn).float().unique()).double()
    found = [codes[(codes - v).abs() <= b].tolist() for v, b in zip(value, limit, strict=True)]
    few = [[34.0], list(range(26, 43)), [37.0], [0.0]]
    assert found == (few if to == "int8" else [[32.0, 36.0], [26.0, 28.0, 30.0, 32.0, 36.0, 40.0], [36.0], [0.0]])


def test_only_numbers_that_may_be_the_largest_change_the_error_of_a_scale() -> None:
    numbers = torch.tensor([[1.0, 8.0, -8.5, float("nan")], [1.0, 2.0, 0.0, 3.0]], dtype=torch.float64)
    error = torch.tensor([[0.5, 1.0, 0.25, 0.0], [0.9, 0.125, 0.1, 0.25]], dtype=torch.float64)
    assert error_of_largest(numbers[:, :3], error[:, :3], 1, 3).tolist() == [[0.5], [0.125]]
    assert error_of_largest(numbers, error, 1, 4).tolist() == [[0.0], [0.25]]
