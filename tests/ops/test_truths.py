"""Truths of every operation: rounded they agree, with an element missing they do not; memory is as declared."""

from __future__ import annotations

import math
import weakref
from importlib import import_module

import pytest
import torch
from judging import CPU, judge_output
from thinning import covering_parts, thorough_unless
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from suite import frameworks, ops
from suite.checking.judge import Verdict, judge
from suite.numerics import noise, repeats
from suite.problem import blocks
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.outputs import joined


def rounded_truth(op: Operation, case: Case) -> torch.Tensor:
    """The truth in the types of the results. Elements that stand for its numbers are those of NumPy's line."""
    inputs = op.make_inputs(case, 0, CPU)
    output = torch.empty(op.output_shape(case), dtype=getattr(torch, op.output_dtype(case)))
    for piece in op.truth(inputs, case):
        if piece.named is None:
            output[piece.index] = piece.value.to(getattr(torch, piece.dtype or op.output_dtype(case))).to(output.dtype)
        else:
            output[piece.index] = numpy_line(op, case, inputs)[piece.index]
    return output


def numpy_line(op: Operation, case: Case, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    adapter = frameworks.get("numpy")
    function = getattr(import_module(f"numpy_impls.{op.name}"), op.name)
    found = function(*map(adapter.to_native, inputs), **op.arguments(case))
    return joined([adapter.to_torch(each) for each in found])


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in ops.names() for dtype in ops.get(name).dtypes])
def test_the_rounded_truth_passes_with_a_ratio_of_at_most_two_thirds(name: str, dtype: str) -> None:
    op = ops.get(name)
    case = next(c for c in op.default_cases("cpu") if c.dtype == dtype)
    output = rounded_truth(op, case)
    verdict = judge_output(op, case, output)
    assert verdict.agrees
    assert verdict.error_ratio < 0.67
    assert verdict.max_ulp < 0.501, "torch rounds float64 to 16 bits through float32"


@pytest.mark.parametrize("name", ops.names())
@pytest.mark.parametrize("poison", [math.nan, math.inf, 0.0])
def test_an_element_that_was_not_written_is_wrong(name: str, poison: float) -> None:
    op = ops.get(name)
    cases = [each for each in op.default_cases("cpu") if each.dtype == op.dtypes[0]]
    case = min(cases, key=lambda each: len(each.options))
    output = rounded_truth(op, case)
    output.reshape(-1)[output.reshape(-1).nonzero()[-1]] = poison  # a result of 0 does not tell a 0 in its place
    verdict = judge_output(op, case, output)
    assert not verdict.agrees
    assert verdict.reason.startswith("value: at [" if poison == 0 else "not finite: at [")
    assert f"got {poison:g}, expected" in verdict.reason


@pytest.mark.parametrize("name", ops.names())
def test_an_empty_output_agrees(name: str) -> None:
    op = ops.get(name)
    for case in op.cases("empty", "cpu") if "empty" in op.families else ():
        if case.dtype != op.dtypes[0]:
            continue
        verdict = judge_output(
            op, case, torch.zeros(op.output_shape(case), dtype=getattr(torch, op.output_dtype(case)))
        )
        assert verdict == Verdict(True, 0.0, 0.0, 0.0)
        assert op.workspace_bytes(case) >= 0


def shape_of_several_blocks(op: Operation) -> tuple[int, ...]:
    """The first size of the sweep whose output, or first operand, is more than two blocks of the least size."""
    return next(shape for shape in op.sweep if elements(op, shape) > 2 * LEAST_BLOCK)


def elements(op: Operation, shape: tuple[int, ...]) -> int:
    """The number of elements of the output or of the first operand, whichever is larger. They are judged in blocks."""
    return max(math.prod(op.output_shape(op.case(shape))), math.prod(op.operands(op.case(shape))[0]))


LEAST_BLOCK = 2**12
LONG = {"grouped_matmul", "lstm", "int4_matmul"}
"""Operations whose truth of two blocks takes seconds."""
SHAPES = [(name, shape_of_several_blocks(ops.get(name))) for name in ops.names()]
SHAPES += [("matmul", (256, 256, 16))]
SHAPES += [("attention", shape) for shape in ((1, 2, 1, 128, 256, 64), (1, 1, 1, 64, 64, 256), (1, 1, 1, 512, 32, 64))]


def judged() -> list[tuple[tuple[str, tuple[int, ...]], tuple[str, str]]]:
    """Each operation and shape in every dtype and precision. float16 takes the memory of bfloat16."""
    found = []
    for name, shape in SHAPES:
        op = ops.get(name)
        own = [each for each in op.dtypes if each != "float16" or "bfloat16" not in op.dtypes]
        beyond = [each for each in op.dtypes_beyond if each != "float64"]  # judged in blocks of their own
        found += [((name, shape), (dtype, p)) for dtype in (*own, *beyond) for p in op.precisions(dtype)]
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "problem" in metafunc.fixturenames:
        rows = judged()
        short = [row for row in rows if row[0][0] not in LONG]
        kept = covering_parts(short, lambda row: {ops.get(row[0][0]).group, row[1]})
        sets = [
            pytest.param(*row, id=f"{row[0][0]}-{row[0][1]}-{'-'.join(row[1])}", marks=thorough_unless(row in kept))
            for row in rows
        ]
        metafunc.parametrize(("problem", "kind"), sets)


def test_judging_takes_no_more_memory_than_is_said(
    problem: tuple[str, tuple[int, ...]], kind: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the memory of the statistics, which has a limit of its own."""
    (name, shape), (dtype, precision) = problem, kind
    op = ops.get(name)
    block = max(LEAST_BLOCK, 1 << (elements(op, shape) // 4).bit_length())  # two to four blocks
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", block)
    monkeypatch.setattr(noise, "SAMPLE", block // 64)
    monkeypatch.setattr(repeats, "TOGETHER", block // 64)
    case = op.case(shape, dtype, precision, **op.option_combinations(dtype, {})[-1])
    inputs = op.make_inputs(case, 0, CPU)
    output = torch.zeros(op.output_shape(case), dtype=getattr(torch, op.output_dtype(case)))
    output.view(-1)[0] = math.nan  # each element is then judged by itself, which takes the most memory
    with Allocations(*inputs, output) as made:
        judge(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=op.output_dtype(case))
    assert 0.4 * op.workspace_bytes(case) < made.peak <= op.workspace_bytes(case)


class Allocations(TorchDispatchMode):
    """Counts the bytes of the tensors alive at a time, without those given."""

    def __init__(self, *aside: torch.Tensor) -> None:
        super().__init__()
        self.live = {tensor.untyped_storage()._cdata for tensor in aside}
        self.now = self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and (key := tensor.untyped_storage()._cdata) not in self.live:
                storage = tensor.untyped_storage()
                self.live.add(key)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.free, key, storage.nbytes())
        return result

    def free(self, key: int, size: int) -> None:
        self.live.discard(key)
        self.now -= size
