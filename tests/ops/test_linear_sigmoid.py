"""linear_sigmoid and its gradient: truths are those of autograd in float64; bounds tell arithmetics apart."""

from __future__ import annotations

import math

import pytest
import torch
from judging import CPU, RIGHT

from cuda_ref.linear_sigmoid.skinny import linear_sigmoid as skinny
from cuda_ref.linear_sigmoid.two_passes import linear_sigmoid as two_passes
from cuda_ref.linear_sigmoid.wgmma import linear_sigmoid as wgmma
from cuda_ref.linear_sigmoid_grad.wgmma import linear_sigmoid_grad as grad_wgmma
from suite import ops
from suite.checking.judge import judge
from suite.numerics.formats import DTYPES
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.outputs import joined

FORWARD, GRAD = ops.get("linear_sigmoid"), ops.get("linear_sigmoid_grad")
Tensors = tuple[torch.Tensor, ...]


def truth(op: Operation, inputs: Tensors, case: Case) -> torch.Tensor:
    value = torch.full(op.output_shape(case), math.nan, dtype=torch.float64)
    for piece in op.truth(inputs, case):
        value[piece.index] = piece.value
    return value


def ratio(op: Operation, output: torch.Tensor, inputs: Tensors, case: Case) -> float:
    return judge(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=case.dtype).error_ratio


@pytest.mark.parametrize("family", ["normal", "saturated", "strided"])
@pytest.mark.parametrize("shape", [(9, 14, 5), (1, 1, 1), (14, 9, 33)], ids=str)
def test_the_truths_are_those_of_autograd(shape: tuple[int, ...], family: str) -> None:
    case = GRAD.case(shape, inputs=family)
    inputs = GRAD.make_inputs(case, 0, CPU)
    x, weight, bias, dy = (each.double().requires_grad_() for each in inputs)
    y = torch.sigmoid(x @ weight.T + bias)
    expected = joined(torch.autograd.grad(y, (x, weight, bias), dy.detach()))
    torch.testing.assert_close(truth(GRAD, inputs, case), expected, rtol=1e-10, atol=1e-12)
    forward = FORWARD.case(shape, inputs=family)
    torch.testing.assert_close(truth(FORWARD, inputs[:3], forward), y.detach(), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["normal", "saturated", "bias_cancels"])
def test_logits_may_be_rounded_twice_as_between_calls_of_a_library(family: str, dtype: str) -> None:
    case = FORWARD.case((64, 80, 300), dtype, inputs=family)
    inputs = FORWARD.make_inputs(case, 0, CPU)
    x, weight, bias = (each.double() for each in inputs)
    kind = inputs[0].dtype
    product = (x @ weight.T).to(kind).double()
    twice = torch.sigmoid((product + bias).to(kind).double()).to(kind)
    assert ratio(FORWARD, twice, inputs, case) < RIGHT
    coarse = torch.sigmoid(product * (1.0 + 256.0 * torch.finfo(kind).eps) + bias).to(kind)
    assert ratio(FORWARD, coarse, inputs, case) > 1.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_may_round_the_output_and_its_derivative(dtype: str) -> None:
    case = GRAD.case((64, 80, 300), dtype)
    inputs = GRAD.make_inputs(case, 0, CPU)
    kind = inputs[0].dtype
    x, weight, bias, dy = (each.double() for each in inputs)
    y = torch.sigmoid(x @ weight.T + bias).to(kind).double()
    dz = (dy * y * (1.0 - y)).to(kind).double()
    results = (dz @ weight, dz.T @ x, dz.sum(0))
    assert ratio(GRAD, joined([each.to(kind) for each in results]), inputs, case) < RIGHT
    for wrong in range(3):
        off = [each * (1.0 + (i == wrong) * 64.0 * torch.finfo(kind).eps) for i, each in enumerate(results)]
        assert ratio(GRAD, joined([each.to(kind) for each in off]), inputs, case) > 1.0


def test_what_the_kernels_for_hopper_leave_out() -> None:
    x, weight, bias = torch.zeros(8, 16).half(), torch.zeros(24, 16).half(), torch.zeros(24).half()
    for function in (wgmma, two_passes):
        with pytest.raises(NotImplementedError, match='float32 in precision "tf32" only; got "ieee"'):
            function(x.float(), weight.float(), bias.float())
        with pytest.raises(NotImplementedError, match="K of at least 1; got K=0"):
            function(x[:, :0], weight[:, :0], bias)
    with pytest.raises(NotImplementedError, match="M must be at most 32"):
        skinny(torch.zeros(33, 16).half(), weight, bias)
    with pytest.raises(NotImplementedError, match="TMA needs x contiguous"):
        skinny(x[:, 1:], weight[:, 1:], bias)
    with pytest.raises(NotImplementedError, match=r"N a multiple of 8; got torch\.float16, M=8 and N=23"):
        grad_wgmma(x, weight[:23], bias[:23], torch.zeros(8, 23).half())
    with pytest.raises(ValueError, match=r"so bias must be \(24,\); got \(23,\)"):
        wgmma(x, weight, bias[:23])


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Round to tf32, to the nearest with ties away from zero, as the tensor cores' conversion does; float64."""
    return ((x.float().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32).double()


def test_a_gradient_below_the_normal_range_may_be_rounded_to_tf32() -> None:
    case = GRAD.case((31, 31, 31), "float32", "tf32", inputs="subnormal@3")
    inputs = GRAD.make_inputs(case, 0, CPU)
    x, weight, bias, dy = (each.double() for each in inputs)
    y = torch.sigmoid(tf32(x) @ tf32(weight).T + bias)
    dz = dy * y * (1.0 - y)
    results = (tf32(dz) @ tf32(weight), tf32(dz).T @ tf32(x), dz.sum(0))
    assert ratio(GRAD, joined(tuple(each.float() for each in results)), inputs, case) <= 1.0
