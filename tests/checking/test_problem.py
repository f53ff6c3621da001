"""Inputs, their buffers, and comparing memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from checked_calls import problem

from suite import ops
from suite.checking.check import judge_draw
from suite.checking.memory import copies_with_layout, same_bits
from suite.numerics import formats
from suite.numerics.sampled import STATISTICS_BYTES


def test_nan_equals_any_other_nan_and_a_zero_not_its_negative() -> None:
    quiet, other = (torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, -1))
    assert same_bits(quiet, other)
    assert same_bits(torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(quiet, torch.tensor([1.0]))
    assert same_bits(torch.empty(0), torch.empty(0))


def test_a_result_with_the_bits_of_a_right_one_is_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    at = problem("vector_add", (257,))
    right = torch.add(*at.draws[0])
    wrong = right.clone()
    wrong[128] += 1.0
    assert not judge_draw(wrong, at, 0).agrees
    assert not judge_draw(wrong, at, 0).agrees, "a wrong result is not kept"
    verdict = judge_draw(right, at, 0)
    assert verdict.agrees
    judged = []
    monkeypatch.setattr(at, "truth", lambda draw: (judged.append(draw), list(at._computed(draw)))[1])
    assert judge_draw(right.clone(), at, 0) is verdict
    assert judged == []
    right[5] = 7.0
    assert not judge_draw(right, at, 0).agrees, "the kept result is a copy"
    assert not judge_draw(torch.add(*at.draws[0]), at, 1).agrees, "each draw has its own"
    assert judge_draw(torch.add(*at.draws[0])[:-1], at, 0).reason.startswith("shape")
    assert judged == [0, 1, 0]


@pytest.mark.parametrize("inputs", ["strided", "offset", "broadcast"])
def test_buffers_lie_in_memory_as_the_inputs_do(inputs: str) -> None:
    at = problem("matrix_add", (33, 65), inputs=inputs)
    for given, buffer in zip(at.draws[0], at.buffers, strict=True):
        assert buffer.stride() == given.stride()
        assert buffer.storage_offset() == given.storage_offset()
        assert buffer.data_ptr() % 16 == given.data_ptr() % 16
    at.present(1)
    assert all(map(torch.equal, at.buffers, at.draws[1]))
    assert at.changed(1) == []
    assert at.changed(0) == [0, 1]


def test_inputs_that_share_memory_share_it_in_the_buffers() -> None:
    both = torch.arange(2000.0)
    a, b = copies_with_layout((both[:1000], both[1000:]))
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != both.data_ptr()
    assert torch.equal(b, both[1000:])


@pytest.mark.parametrize("name", ops.names())
def test_the_memory_of_a_checked_run_counts_both_draws_and_the_copies(name: str) -> None:
    op = ops.get(name)
    case = op.default_cases("cuda")[0]
    inputs = bytes_of(op.operands(case), op.operand_dtypes(case))
    outputs = bytes_of(op.output_shapes(case), op.output_dtypes(case))
    joined = bytes_of([op.output_shape(case)], [op.output_dtype(case)]) if op.outputs else 0
    held = 3 * inputs + 4 * outputs + 2 * joined
    assert op.memory_bytes(case) == held + op.workspace_bytes(case) + STATISTICS_BYTES


def bytes_of(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> int:
    return sum(math.prod(shape) * formats.element_bytes(dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
