"""A result of NaN says nothing about a pattern: only the origin of its bits is named."""

from __future__ import annotations

import pytest
import torch

from suite import ops
from suite.checking.diagnosis import diagnose
from suite.checking.problem import Problem

COMPUTED, UNWRITTEN = 0x7FC00001, 0x7FC00000
"""Bits of NaN: some that neither the allocator nor the memory around operands has, and those of fresh memory."""
SHAPES = {"matmul": "M=64,N=64,K=64", "matrix_add": "M=64,N=72", "softmax": "M=16,N=64", "vector_add": "N=1000"}


def problem(operation: str) -> Problem:
    op = ops.get(operation)
    [shape] = op.parse_shapes(SHAPES[operation])
    return Problem(op.case(shape, "float32"), 0, torch.device("cpu"))


def with_nan(held: Problem, share: float, bits: int) -> torch.Tensor:
    """The right result, with NaN in a random share of its elements."""
    right = torch.cat([piece.value.reshape(-1).float() for piece in held.truth(0)]).reshape(held.output_shape)
    chosen = torch.rand(right.shape, generator=torch.Generator().manual_seed(1)) < share
    nan = torch.full(right.shape, bits, dtype=torch.int32).view(torch.float32)
    return torch.where(chosen, nan, right)


@pytest.mark.parametrize("share", [1.0, 0.995, 0.5])
@pytest.mark.parametrize("operation", SHAPES)
def test_no_mistake_is_read_into_nan(operation: str, share: float) -> None:
    held = problem(operation)
    assert diagnose(with_nan(held, share, COMPUTED), 0, held).text == ""


def test_the_origin_of_its_bits_is_named() -> None:
    held = problem("matmul")
    found = diagnose(with_nan(held, 1.0, UNWRITTEN), 0, held).text
    assert found == "as if the whole result was never written, or computed from memory that was never written"
