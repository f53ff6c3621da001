"""cross_entropy: float32 arithmetic is right and one more rounding is not; targets that are no columns; huge logits."""

from __future__ import annotations

import math

import pytest
import torch
from judging import CPU, called, judge_output

from cuda_ref.cross_entropy import cross_entropy as cuda
from cuda_ref.cross_entropy.registers import cross_entropy as cuda_registers
from jax_impls.cross_entropy import cross_entropy as jax_line
from numpy_impls.cross_entropy import cross_entropy as numpy_line
from suite import ops
from suite.numerics.formats import DTYPES
from suite.problem.outputs import joined
from torch_impls.cross_entropy import cross_entropy as torch_line
from triton_kernels.cross_entropy import cross_entropy as triton
from triton_kernels.cross_entropy.registers import cross_entropy as triton_registers

OP = ops.get("cross_entropy")
LINES = [triton, triton_registers, cuda, cuda_registers]


@pytest.mark.parametrize("inputs", ["normal", "smoothing", "peaks"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_tells_float32_from_fewer_digits(dtype: str, inputs: str) -> None:
    case = OP.case((9, 4104), dtype, inputs=inputs)
    logits, target = OP.make_inputs(case, 0, CPU)
    right = torch_line(logits, target, **OP.arguments(case))
    assert judge_output(OP, case, joined(right)).error_ratio < 0.7
    loss, dlogits = right
    coarse = torch.bfloat16 if dtype == "float32" else torch.float8_e4m3fn
    assert judge_output(OP, case, joined((loss.to(torch.float16).float(), dlogits))).error_ratio > 1.2
    scaled = (dlogits.float() * 2.0**10).to(coarse).float() * 2.0**-10
    assert judge_output(OP, case, joined((loss, scaled.to(dlogits.dtype)))).error_ratio > 1.2


def test_no_row_counts_if_all_are_ignored() -> None:
    case = OP.case((9, 136), "float32", inputs="all_ignored")
    _, target = OP.make_inputs(case, 0, CPU)
    assert target.eq(-100).all()
    assert judge_output(OP, case, torch.zeros(9 + 9 * 136)).agrees


def test_targets_are_columns_and_rows_with_infinities_count() -> None:
    case = OP.case((9, 136), "float32", inputs="infinity")
    logits, target = OP.make_inputs(case, 0, CPU)
    assert target.dtype == torch.int64
    assert ((target == -100) | ((target >= 0) & (target < 136))).all()
    assert (target[~logits.isfinite().all(dim=1)] >= 0).all()


@pytest.mark.parametrize("target", [136, -1, 2**40])
@pytest.mark.parametrize("line", LINES, ids=lambda each: each.__module__)
def test_a_target_that_is_no_column_gives_nan_in_its_row_alone(line, target: int, device: str) -> None:
    logits = torch.randn(5, 136)
    targets = torch.tensor([3, target, -100, 135, 0])
    loss, dlogits = called(line, device, logits, targets)
    assert loss.isnan().tolist() == dlogits.isnan().all(dim=1).tolist() == [False, True, False, False, False]
    right = torch_line(logits, targets.where(targets != target, 7))
    for found, expected in zip((loss, dlogits), right, strict=True):
        others = [0, 2, 3, 4]
        torch.testing.assert_close(found[others], expected[others])


def test_numpy_and_torch_refuse_a_target_that_is_no_column_and_jax_gives_nan() -> None:
    logits, targets = torch.randn(3, 5), torch.tensor([0, 5, -100])
    with pytest.raises(ValueError, match="target must be -100 or from 0 to 4; got 5"):
        numpy_line(logits.numpy(), targets.numpy())
    with pytest.raises(IndexError, match="out of bounds"):
        torch_line(logits, targets)
    loss, dlogits = jax_line(logits.numpy(), targets.numpy())
    assert [math.isnan(each) for each in loss] == [False, True, False]
    assert [all(map(math.isnan, row)) for row in dlogits] == [False, True, False]


def test_arguments_that_break_the_contract() -> None:
    logits, target = torch.randn(3, 5), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"so target must be \(3,\); got \(2,\)"):
        torch_line(logits, target[:2])
    with pytest.raises(ValueError, match="target must be int64; got int32"):
        torch_line(logits, target.int())
    with pytest.raises(ValueError, match=r"label_smoothing must be from 0 to 1; got 1\.5"):
        torch_line(logits, target, label_smoothing=1.5)
    with pytest.raises(ValueError, match=r"logits must be \(T, V\)"):
        torch_line(logits[0], target)


@pytest.mark.parametrize("line", [torch_line, *LINES], ids=lambda each: each.__module__)
def test_no_columns_or_no_rows(line, device: str) -> None:
    loss, dlogits = called(line, device, torch.empty(3, 0), torch.full((3,), -100))
    assert loss.tolist() == [0.0, 0.0, 0.0]
    assert dlogits.shape == (3, 0)
    loss, dlogits = called(line, device, torch.empty(0, 3), torch.empty(0, dtype=torch.int64))
    assert (loss.shape, dlogits.shape) == ((0,), (0, 3))
