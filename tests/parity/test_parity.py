"""Every implementation of every operation agrees with float64 on every family of inputs, in every dtype."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from suite import ops
from suite.checking import diagnosis
from suite.checking.checked_call import LocalCaller, check, check_briefly
from suite.checking.problem import Problem
from suite.checking.result_form import RefusedError
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.numerics.formats import DTYPES
from suite.problem.case import Case

if TYPE_CHECKING:
    from suite.hardware.device import Device

CPU_FLAGS = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
ALL, WIDE, HALF, BF16 = tuple(DTYPES), ("float32", "bfloat16"), ("float16", "bfloat16"), ("bfloat16",)
FLOAT8 = ("float8_e4m3fn",)
EVERY = (*ALL, *FLOAT8)
FLUSHED = "XLA flushes subnormal numbers to zero on a CPU; float16's it has widened before"
FLUSHED_16 = "cuDNN's kernels flush subnormal bfloat16 numbers to zero on a GPU"
MISREAD = "Triton's interpreter widens subnormal bfloat16 numbers wrongly"
MISREAD_8 = "Triton's interpreter reads the NaN of float8_e4m3fn as 480"
OVERFLOWS = "PyTorch computes 1 / (1 + exp(-x)) as it stands: where exp overflows, what is subnormal becomes 0"
DOT_PRODUCTS = "the bfloat16 instructions of this CPU, which oneDNN uses, flush subnormal numbers to zero"
LEAKS = "weights of 0 meet hidden values in a product, and 0 times NaN or infinity is NaN"
ZEROS = "PyTorch's kernels give zeros, not NaN, where every score of a query is minus infinity"
ADDS_THE_MASK = f"a mask is added to scores, where NaN stays NaN; and {LEAKS}"

RANGE = ("subnormal", "largest", "infinity", "large_logits", "shifted", "positive")
"""Families in which float16 differs from bfloat16 by more than its rounding."""

KNOWN: dict[tuple[str, str, str, str], tuple[tuple[str, ...], str]] = {
    ("cpu", "vector_add", "triton", "subnormal"): (BF16, MISREAD),
    ("cpu", "vector_add", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "matrix_add", "triton", "subnormal"): (BF16, MISREAD),
    ("cpu", "matrix_add", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "sigmoid", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "sigmoid", "torch", "subnormal"): (WIDE, OVERFLOWS),
    ("cpu", "sum", "triton", "subnormal"): (BF16, MISREAD),
    ("cpu", "sum", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "softmax", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "rms_norm", "triton", "subnormal"): (BF16, MISREAD),
    ("cpu", "rms_norm", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "matmul", "triton", "subnormal"): (BF16, MISREAD),
    ("cpu", "matmul", "triton/persistent", "subnormal"): (BF16, MISREAD),
    ("cpu", "matmul", "triton", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "matmul", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "matmul", "torch", "subnormal"): (BF16 if "avx512_bf16" in CPU_FLAGS else (), DOT_PRODUCTS),
    ("cpu", "conv2d", "triton", "subnormal"): (BF16, MISREAD),
    ("cpu", "conv2d", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "conv2d", "torch", "subnormal"): (BF16 if "avx512_bf16" in CPU_FLAGS else (), DOT_PRODUCTS),
    ("cpu", "attention", "triton", "subnormal"): (BF16, MISREAD),
    ("cpu", "attention", "jax", "subnormal"): (WIDE, FLUSHED),
    ("cpu", "attention", "triton", "nan"): (FLOAT8, MISREAD_8),
    ("cpu", "attention", "jax", "infinity"): (ALL, LEAKS),
    ("cpu", "attention", "jax", "nan"): (EVERY, LEAKS),
    ("cpu", "attention", "torch", "infinity"): (ALL, ADDS_THE_MASK),
    ("cpu", "attention", "torch", "nan"): (EVERY, ADDS_THE_MASK),
    ("cpu", "attention", "torch/flash", "infinity"): (ALL, ADDS_THE_MASK),
    ("cpu", "attention", "torch/flash", "nan"): (ALL, ADDS_THE_MASK),
    ("cpu", "attention", "torch/math", "infinity"): (ALL, ADDS_THE_MASK),
    ("cpu", "attention", "torch/math", "nan"): (EVERY, ADDS_THE_MASK),
    ("cpu", "attention", "torch", "minus_infinity_all"): (ALL, ZEROS),
    ("cpu", "attention", "torch/flash", "minus_infinity_all"): (ALL, ZEROS),
    ("cpu", "attention", "torch/math", "minus_infinity_all"): (ALL, ZEROS),
    ("cpu", "multi_head_attention", "jax", "nan"): (ALL, LEAKS),
    ("cpu", "multi_head_attention", "torch", "nan"): (ALL, ADDS_THE_MASK),
    ("cuda", "sigmoid", "torch", "subnormal"): (WIDE, OVERFLOWS),
    ("cuda", "attention", "jax", "infinity"): (ALL, LEAKS),
    ("cuda", "attention", "jax", "nan"): (EVERY, LEAKS),
    ("cuda", "attention", "jax/cudnn", "infinity"): (HALF, LEAKS),
    ("cuda", "attention", "jax/cudnn", "nan"): (HALF, LEAKS),
    ("cuda", "attention", "jax/cudnn", "subnormal"): (BF16, FLUSHED_16),
    ("cuda", "attention", "torch", "infinity"): (ALL, LEAKS),
    ("cuda", "attention", "torch", "nan"): (EVERY, LEAKS),
    ("cuda", "attention", "torch", "subnormal"): (BF16, FLUSHED_16),
    ("cuda", "attention", "torch/cudnn", "infinity"): (HALF, LEAKS),
    ("cuda", "attention", "torch/cudnn", "nan"): (HALF, LEAKS),
    ("cuda", "attention", "torch/cudnn", "subnormal"): (BF16, FLUSHED_16),
    ("cuda", "attention", "torch/flash", "infinity"): (HALF, LEAKS),
    ("cuda", "attention", "torch/flash", "nan"): (HALF, LEAKS),
    ("cuda", "attention", "torch", "minus_infinity_all"): (ALL, ZEROS),
    ("cuda", "attention", "torch/cudnn", "minus_infinity_all"): (HALF, ZEROS),
    ("cuda", "attention", "jax/cudnn", "minus_infinity_all"): (HALF, ZEROS),
    ("cuda", "attention", "torch/flash", "minus_infinity_all"): (HALF, ZEROS),
    ("cuda", "attention", "torch/math", "minus_infinity_all"): (ALL, ZEROS),
    ("cuda", "attention", "torch/math", "infinity"): (ALL, ADDS_THE_MASK),
    ("cuda", "attention", "torch/math", "nan"): (EVERY, ADDS_THE_MASK),
    ("cuda", "multi_head_attention", "jax", "nan"): (ALL, LEAKS),
    ("cuda", "multi_head_attention", "jax/cudnn", "nan"): (HALF, LEAKS),
    ("cuda", "multi_head_attention", "torch", "nan"): (ALL, LEAKS),
}
"""What a library or a compiler cannot do: (device, operation, implementation, family) -> (dtypes, why).

An entry that no longer holds fails its test. The suite's own kernels have entries only for the tools that run them.
"""


def parameters() -> list[object]:
    """Implementations of one problem are neighbours, so that its inputs are drawn once.

    The family `normal` has the sizes for timing, and is left out; so are other libraries' kernels.
    """
    found = []
    for name in ops.names():
        for family, kind in ops.get(name).families.items():
            marks = [pytest.mark.gpu] if kind.needs_gpu else []
            for dtype in kind.dtypes if family != "normal" else ():
                for each in builtin.implementations(name):
                    if each.peer is None and dtype in (*DTYPES, *each.dtypes_beyond):
                        where = f"{name}-{family}-{dtype}-{each.name}"
                        found.append(pytest.param(each, family, dtype, id=where, marks=marks))
    return found


@lru_cache(maxsize=16)
def problem(case: Case, device: torch.device) -> Problem:
    return Problem(case, 1, device)


def complaint(implementation: Implementation, case: Case, where: Device) -> str:
    """What is wrong with the implementation on this case; empty if nothing is. `NotImplementedError` passes through.

    An interpreter is slow, and what further calls show (work on other streams, races, repeated launches) does not arise
    in it.
    """
    load = lambda: getattr(implementation.load(), case.operation)  # noqa: E731
    huge = ops.get(case.operation).families[case.inputs].needs_gpu
    given = (problem.__wrapped__ if huge else problem)(case, torch.device(where.type))
    if implementation.adapter.mode(where) == "interpreted":
        try:
            reason, explained = check_briefly(LocalCaller(load, implementation.adapter, given), given, 0.0)
            assert diagnosis.FAILED not in explained.text
        except RefusedError as refused:
            reason = str(refused)
    else:
        found = check(load, implementation.adapter, given)
        reason = found.reason
        assert diagnosis.FAILED not in found.diagnosis
    return f"{case.label} {case.precision}: {reason}" if reason else ""


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lets one of the test processes at a time run a family that takes most of the GPU's memory."""
    with (Path(tempfile.gettempdir()) / f"suite-huge-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        problem.cache_clear()
        torch.cuda.empty_cache()
        try:
            yield
        finally:
            torch.cuda.empty_cache()


@pytest.fixture(autouse=True)
def _brief_diagnoses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known to be wrong is not to be explained here."""
    monkeypatch.setattr(diagnosis, "BUDGET_S", 0.02)


@pytest.mark.parametrize(("implementation", "family", "dtype"), parameters())
def test_agrees_with_float64(where: Device, implementation: Implementation, family: str, dtype: str) -> None:
    obstacle = implementation.obstacle(where)
    if obstacle is not None:
        pytest.skip(f"{obstacle[0]}: {obstacle[1]}")
    if dtype == "float16" and family not in RANGE and where.type == "cpu":
        pytest.skip("on a CPU float16 takes the way of bfloat16; a GPU runs both")
    op = ops.get(implementation.operation)
    found, refused = [], set()
    with one_at_a_time() if op.families[family].needs_gpu else contextlib.nullcontext():
        for case in op.cases(family, where.type):
            if case.dtype == dtype:
                try:
                    found.append(complaint(implementation, case, where))
                except NotImplementedError as error:
                    refused.add(str(error))
    wrong = [text for text in found if text]
    dtypes, why = KNOWN.get((where.type, op.name, implementation.name, family), ((), ""))
    if dtype in dtypes:
        assert wrong, f"this agrees now; remove it from KNOWN: {why}"
        pytest.xfail(why)
    assert not wrong, "\n".join(wrong)
    if not found:
        pytest.skip(f"unsupported: {'; '.join(refused)}")
