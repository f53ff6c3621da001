"""The gradients of norms: the truth is autograd's in float64, and terms of sums over rows in 16 bits are refused."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, judge_output

from suite import ops
from suite.problem.outputs import joined
from torch_impls.layer_norm_grad import layer_norm_grad as torch_line

NORMS = {"rms_norm_grad": torch.nn.functional.rms_norm, "layer_norm_grad": torch.nn.functional.layer_norm}


@pytest.mark.parametrize("name", NORMS)
def test_the_truth_is_the_gradient_of_autograd(name: str) -> None:
    op = ops.get(name)
    case = op.case((7, 33), "float32")
    x, weight, dy = op.make_inputs(case, 0, CPU)
    leaves = [each.double().requires_grad_() for each in (x, weight, torch.zeros_like(weight))]
    options = leaves[1:] if name == "layer_norm_grad" else leaves[1:2]
    y = NORMS[name](leaves[0], (33,), *options, eps=op.arguments(case)["eps"])  # type: ignore[operator]
    expected = joined(torch.autograd.grad(y, [leaves[0], *options], dy.double()))
    found = torch.empty(op.output_shape(case), dtype=torch.float64)
    for piece in op.truth((x, weight, dy), case):
        found[piece.index] = piece.value
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_terms_of_dweight_in_16_bits_are_wrong(name: str, dtype: str) -> None:
    op = ops.get(name)
    case = op.case((500, 24), dtype)
    inputs = op.make_inputs(case, 0, CPU)
    right = torch.empty(op.output_shape(case), dtype=torch.float64)
    for piece in op.truth(inputs, case):
        right[piece.index] = piece.value
    assert judge_output(op, case, right.to(inputs[0].dtype)).error_ratio < 0.7
    x, dy = inputs[0].double(), inputs[2].double()
    c = x - x.mean(1, keepdim=True) if name == "layer_norm_grad" else x
    terms = dy * c * torch.rsqrt(c.square().mean(1, keepdim=True) + op.arguments(case)["eps"])
    few = right.clone()
    few[x.numel() : x.numel() + 24] = terms.bfloat16().double().sum(0)
    assert judge_output(op, case, few.to(inputs[0].dtype)).error_ratio > 1.2


@pytest.mark.parametrize("seed", [4, 8, 10])
def test_one_pass_over_rows_with_a_large_mean_is_right_and_a_difference_of_squares_is_wrong(seed: int) -> None:
    """PyTorch on a CPU updates a running mean, and subtracts the mean of g times that of x from the mean of g x."""
    op = ops.get("layer_norm_grad")
    case = op.case((31, 31), "float32", inputs="shifted")
    x, weight, dy = op.make_inputs(case, seed, CPU)
    eps = op.arguments(case)["eps"]
    assert judge_output(op, case, joined(torch_line(x, weight, dy, eps=eps)), seed).error_ratio < 0.7
    mean = x.mean(1, keepdim=True)
    scale = torch.rsqrt((x.square().mean(1, keepdim=True) - mean.square()).clamp(min=0.0) + eps)
    xhat, g = (x - mean) * scale, dy * weight
    dx = scale * (g - g.mean(1, keepdim=True) - xhat * (g * xhat).mean(1, keepdim=True))
    assert judge_output(op, case, joined((dx, (dy * xhat).sum(0), dy.sum(0))), seed).error_ratio > 2.0
