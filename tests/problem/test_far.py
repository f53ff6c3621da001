"""Operands with elements 2^31 apart take little memory, and kernels with 32-bit offsets fail on them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from judging import CPU

from suite import frameworks, ops
from suite.checking.memory import whole_storage
from suite.checking.problem import Problem, Problems
from suite.checking.telling_cases import probe
from suite.implementations import builtin
from suite.problem import far, layouts, ring
from validation.mutation.memory import offsets_of

MOST_BYTES = 100 << 20
"""Memory that the far cases of one operation may take, with both draws and the buffers."""


def resident_bytes() -> int:
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def far_problems(name: str, dtype: str) -> Problems:
    cases = {each: case for each, case in ops.get(name).telling_cases(dtype, "ieee").items() if layouts.is_far(each)}
    return Problems(cases, lambda case: Problem(case, 0, CPU))


@pytest.mark.parametrize("shape", [(31,), (5, 7), (2, 3, 4, 5), (1, 9), (512, 3)])
@pytest.mark.parametrize("axis", range(4))
def test_the_last_slice_lies_beyond_offsets_of_31_bits(shape: tuple[int, ...], axis: int) -> None:
    drawn = torch.randn(shape)
    placed = far.place(drawn, axis)
    assert torch.equal(placed, drawn)
    if axis < len(shape) and shape[axis] > 1:
        assert (shape[axis] - 1) * placed.stride(axis) >= far.REACH
        assert far.slices(placed).numel() == drawn.numel()  # type: ignore[union-attr]
    else:
        assert placed is drawn


@pytest.mark.parametrize(
    "view",
    [
        torch.zeros(4, 5),
        torch.zeros(4, 5).mT,
        torch.zeros(6, 2**18)[::2, ::3],
        torch.zeros(1, 5).expand(4, 5),
        torch.zeros(0, 5),
        torch.zeros(()),
    ],
)
def test_other_layouts_have_no_far_slices(view: torch.Tensor) -> None:
    assert far.slices(view) is None
    assert whole_storage(view).nbytes == view.untyped_storage().nbytes()


@pytest.mark.parametrize("inputs", ["far0/far1", "far1/far0", "far0/transposed"])
def test_buffers_of_far_operands_get_their_values_and_show_writes(inputs: str) -> None:
    op = ops.get("matmul")
    at = Problem(op.case((31, 17, 9), inputs=inputs), 0, CPU)
    for draw in (1, 0):
        at.present(draw)
        assert all(map(torch.equal, at.buffers, at.draws[draw]))
        assert at.changed(draw) == []
    at.buffers[0][30, 8] += 1.0
    assert at.changed(0) == [0]


@pytest.mark.parametrize("name", ops.alone())
def test_torch_is_right_on_far_operands_in_little_memory(name: str) -> None:
    problems = far_problems(name, ops.get(name).dtypes[0])
    before = resident_bytes()
    for problem in problems.values():
        problem.present(1)
    assert resident_bytes() - before < MOST_BYTES
    line = builtin.find(name, "torch")
    found = probe(lambda case: line.function(), line.adapter, problems)
    assert (found.reason, found.passed) == ("", tuple(problems))


@pytest.mark.parametrize("name", ["matrix_add", "matmul", "attention", "softmax", "rope", "conv2d", "sum"])
def test_offsets_of_32_bits_are_wrong(name: str) -> None:
    function, read = builtin.find(name, "torch").function(), offsets_of(32, signed=True)

    def with_int_offsets(*operands: torch.Tensor, **arguments: object) -> object:
        return function(*map(read, operands), **arguments)

    found = probe(lambda case: with_int_offsets, frameworks.get("torch"), far_problems(name, "float32"))
    assert found.reason.startswith("value")


def test_there_are_none_where_addresses_count_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nbytes: int, device: torch.device, block: int) -> torch.Tensor:
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr(far, "reserve", refuse)
    monkeypatch.setattr(far, "_reserves_without_memory", far._reserves_without_memory.__wrapped__)
    assert not any(map(layouts.is_far, ops.get("matmul").telling_cases("float32", "ieee")))


@pytest.mark.parametrize("available", [True, False])
def test_a_gpu_has_them_if_its_driver_maps_a_block_twice(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(ring, "is_available", lambda device: available)
    told = ops.get("matmul").telling_cases("float32", "ieee", device_type="cuda")
    assert any(map(layouts.is_far, told)) == available
