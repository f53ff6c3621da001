"""silu_mul and its gradient: their bounds refuse fewer bits, and the gradient is that of autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from judging import CPU, judge_output

from suite import ops
from suite.numerics.formats import DTYPES
from suite.problem.outputs import joined

ACTIVATIONS = ("silu", "gelu_tanh")


def active(a: torch.Tensor, activation: str) -> torch.Tensor:
    function: Any = torch.nn.functional
    return function.silu(a) if activation == "silu" else function.gelu(a, approximate="tanh")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_float32_inside_is_right_and_16_bits_are_wrong(dtype: str, activation: str) -> None:
    op = ops.get("silu_mul")
    case = op.case((64, 129), dtype, activation=activation)
    a, b = op.make_inputs(case, 0, CPU)

    def ratio(kind: torch.dtype) -> float:
        result = active(a.to(kind), activation).to(kind) * b.to(kind)
        return judge_output(op, case, result.to(a.dtype)).error_ratio

    assert ratio(torch.float32) < 0.7
    assert ratio(torch.bfloat16 if dtype == "float32" else a.dtype) > 1.2


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_autograd_is_right_and_a_gate_of_16_bits_is_wrong(dtype: str, activation: str) -> None:
    op = ops.get("silu_mul_grad")
    case = op.case((64, 129), dtype, activation=activation)
    a, b, dy = op.make_inputs(case, 0, CPU)

    def ratio(gate_in: torch.dtype) -> float:
        wide_a, wide_b = (each.float().requires_grad_() for each in (a, b))
        s = active(wide_a, activation)
        kept = s + (s.to(gate_in).float() - s).detach()
        (kept * wide_b).backward(dy.float())
        assert wide_a.grad is not None
        assert wide_b.grad is not None
        return judge_output(op, case, joined([wide_a.grad.to(a.dtype), wide_b.grad.to(a.dtype)])).error_ratio

    assert ratio(torch.float32) < 0.7
    assert ratio(torch.bfloat16 if dtype == "float32" else a.dtype) > 1.2


def test_a_gate_that_overflows_to_zero_is_within_the_bound() -> None:
    """Where exp(-a) overflows, a / (1 + exp(-a)) is 0."""
    op = ops.get("silu_mul")
    case = op.case((1, 8), "float32")
    a, b = torch.linspace(-104.0, -89.0, 8)[None], torch.ones(1, 8)
    (piece,) = op.truth((a, b), case)
    assert bool((piece.value.abs() <= piece.limit).all())
