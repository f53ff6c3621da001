"""linear_cross_entropy: logits may be rounded to their dtype and not to another; blocks of columns; other targets."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, called, judge_output
from torch import Tensor

import torch_impls.linear_cross_entropy as torch_module
import triton_kernels.linear_cross_entropy as triton_module
from suite import ops
from suite.checking.judge import judge
from suite.numerics.formats import DTYPES
from suite.problem.outputs import joined
from torch_impls.linear_cross_entropy import linear_cross_entropy as torch_line
from triton_kernels.linear_cross_entropy import linear_cross_entropy as triton_line

OP = ops.get("linear_cross_entropy")


def results(
    z: Tensor, x: Tensor, weight: Tensor, target: Tensor, factors: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses and gradients of given logits, in float64 but for the gradients of logits, which are `factors`."""
    counted = target >= 0
    at = target.where(counted, 0)[:, None]
    log_p = torch.log_softmax(z.double(), dim=1)
    loss = -log_p.gather(1, at)[:, 0].masked_fill(~counted, 0.0)
    dz = log_p.exp().scatter_add(1, at, -torch.ones_like(at, dtype=torch.float64)).masked_fill(~counted[:, None], 0.0)
    dz = (dz / counted.sum()).to(factors).double()
    return loss.float(), (dz @ weight.double()).to(x.dtype), (dz.T @ x.double()).to(x.dtype)


@pytest.mark.parametrize("shape", [(33, 65, 34), (9, 4104, 8)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_and_their_gradients_may_be_rounded_to_the_dtype_alone(dtype: str, shape: tuple[int, ...]) -> None:
    case = OP.case(shape, dtype)
    x, weight, target = OP.make_inputs(case, 0, CPU)
    z = x.double() @ weight.double().T

    def ratio(logits: Tensor, factors: torch.dtype) -> float:
        return judge_output(OP, case, joined(results(logits, x, weight, target, factors))).error_ratio

    assert ratio(z, torch.float64) < 0.7
    assert ratio(z.to(x.dtype), x.dtype) < 0.7
    coarse = torch.float16 if dtype == "float32" else torch.float8_e4m3fn
    assert ratio(z.to(coarse), x.dtype) > 1.2


def test_gradients_of_logits_may_lie_within_a_few_steps_of_float16() -> None:
    """They are about 2e-6, and nearly equal: their roundings depend on the logits, and add up."""
    case = OP.case((64, 8192, 1), "float16")
    source = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 1, generator=source).mul(size).half() for n, size in ((64, 0.03), (8192, 1.0)))
    target = torch.arange(64)
    z = x.double() @ weight.double().T
    truths = list(OP.truth((x, weight, target), case))

    loss, *_ = results(z, x, weight, target, torch.float64)
    dz = (torch.softmax(z, 1) - torch.eye(64, 8192, dtype=torch.float64)).div_(64.0)

    def ratio(spacing: float) -> float:
        rounded = dz.div(spacing).round_().mul_(spacing)
        found = joined((loss, (rounded @ weight.double()).half(), (rounded.T @ x.double()).half()))
        return judge(found, iter(truths), shape=OP.output_shape(case), dtype=OP.output_dtype(case)).error_ratio

    assert ratio(2.0**-40) < 0.7
    assert ratio(2.0**-24) < 0.7
    assert ratio(2.0**-22) > 1.2


@pytest.mark.parametrize("line", [torch_line, triton_line], ids=["torch", "triton"])
def test_small_blocks_of_columns_give_the_same(line, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks have at least 256 columns; the last of three is shorter, and one target lies in each."""
    for module in (torch_module, triton_module):
        monkeypatch.setattr(module, "LOGITS", 1)
    case = OP.case((3, 600, 8), "float32")
    x, weight, _ = OP.make_inputs(case, 0, CPU)
    target = torch.tensor([255, 256, 599])
    found = called(line, device, x, weight, target)
    expected = results(x.double() @ weight.double().T, x, weight, target, torch.float64)
    for each, right in zip(found, expected, strict=True):
        torch.testing.assert_close(each, right, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("line", [torch_line, triton_line], ids=["torch", "triton"])
def test_a_target_that_is_no_column_gives_nan_in_its_row(line, device: str) -> None:
    x, weight, target = torch.randn(4, 8), torch.randn(20, 8), torch.tensor([3, 20, -100, 0])
    loss, dx, dweight = called(line, device, x, weight, target)
    assert loss.isnan().tolist() == dx.isnan().all(dim=1).tolist() == [False, True, False, False]
    assert dweight.isnan().all()


def test_arguments_that_break_the_contract() -> None:
    x, weight, target = torch.randn(4, 8), torch.randn(20, 8), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"weight must be \(V, 8\); got \(20, 7\)"):
        torch_line(x, weight[:, :7], target)
    with pytest.raises(ValueError, match=r"target must be \(4,\); got \(3,\)"):
        torch_line(x, weight, target[:3])
    with pytest.raises(ValueError, match="x is float32, so weight must be float32; got float16"):
        torch_line(x, weight.half(), target)


def test_no_row_is_ignored_if_a_weight_is_nan() -> None:
    """All logits have a NaN then, and libraries multiply those of an ignored row by 0."""
    _, weight, target = OP.make_inputs(OP.case((400, 5, 6), inputs="nan@1"), 0, CPU)
    assert bool(weight.isnan().any())
    assert bool((target >= 0).all())
    assert bool((OP.make_inputs(OP.case((400, 5, 6)), 0, CPU)[2] < 0).any())
