"""A right kernel passes all telling cases under the checked emulation; a fault is an alarm with its case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cuda_ref import build
from cuda_ref.build import compiler
from suite import ops
from suite.checking.problem import Problem, Problems
from suite.implementations import builtin
from validation import checked_kernels

pytestmark = [
    pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu"))),
    pytest.mark.skipif(not compiler.can_check(), reason="accesses are checked by GCC only; set CXX=g++"),
]


def first_cases(count: int) -> Problems:
    cases = ops.get("vector_add").telling_cases("float32", "ieee")
    return Problems(dict(list(cases.items())[:count]), lambda case: Problem(case, 0, torch.device("cpu")))


def test_a_right_kernel_has_no_alarm() -> None:
    (line,) = checked_kernels.lines("vector_add", ["cuda"])
    found = checked_kernels.checked_calls(line, first_cases(6), "float32", "ieee")
    assert (found.passed, found.declined, found.alarm) == (6, 0, "")


def test_an_access_beyond_an_operand_is_an_alarm_that_names_its_case() -> None:
    def vector_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.empty(a.shape, dtype=a.dtype)
        args = (a[:-1], b, out, a.numel(), a.stride(0), b.stride(0), build.DTYPES[a.dtype])
        build.launch("vector_add/vector_add", "vector_add", a.device, *args)
        return out

    cuda = builtin.find("vector_add", "cuda")
    faulty: Any = SimpleNamespace(
        operation="vector_add", name="faulty", adapter=cuda.adapter, load=lambda: SimpleNamespace(vector_add=vector_add)
    )
    found = checked_kernels.checked_calls(cast(Any, faulty), first_cases(2), "float32", "ieee")
    assert "reads index" in found.alarm
    assert "in the telling case" in found.alarm


def test_lines_that_need_a_gpu_are_left_out() -> None:
    names = [each.name for each in checked_kernels.lines("matmul", ["cuda*"])]
    assert "cuda/tiled" in names
    assert "cuda/wgmma" not in names
