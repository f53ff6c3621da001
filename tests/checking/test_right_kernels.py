"""Right kernels of public style pass: the usual inputs of people, ragged sizes, and the operation's telling cases."""

from __future__ import annotations

from functools import cache

import pytest
import right_kernels
import torch
from right_kernels import (
    Right,
    jax_style,
    numpy_style,
    torch_attention,
    torch_products,
    torch_rows,
    torch_style,
    triton_style,
)
from thinning import covering_parts, thorough_unless

from cuda_ref.build.compiler import missing
from suite import frameworks, ops
from suite.checking.problem import Problem, Problems
from suite.checking.telling_cases import probe

TORCH = (torch_style, torch_rows, torch_products, torch_attention)
STYLES = (
    *((module, "torch") for module in TORCH),
    (numpy_style, "numpy"),
    (jax_style, "jax"),
    (triton_style, "triton"),
)
RIGHT = [right for module, framework in STYLES for right in right_kernels.kernels(module, framework)]
TYPES = {"torch": ("float32", "bfloat16"), "jax": ("float32", "bfloat16")}
CUDA_FILES = list(right_kernels.cuda_files())
ALL = {right.name: right for right in (*RIGHT, *CUDA_FILES)}
IN_MAKE_TEST = {*covering_parts([*ALL], lambda name: {ops.get(ALL[name].operation).group, ALL[name].framework})}
"""One of each group of operations, and of each framework."""
CPU = torch.device("cpu")
LEAST, LEAST_CUDA = 180, 20
"""The numbers of right kernels, and of those in CUDA, that a claim of no false alarm is about."""


def dtypes_of(right: Right) -> list[str]:
    """The two types of a framework that the operation has; those of the operation if it has neither."""
    known = ops.get(right.operation).dtypes
    return [each for each in TYPES.get(right.framework, ("float32", "float16")) if each in known] or list(known)


@cache
def problems(operation: str, dtype: str) -> Problems:
    """The telling cases of an operation in one dtype, and whole tiles of a product, the same for all its kernels."""
    op = ops.get(operation)
    cases = op.telling_cases(dtype, op.precisions(dtype)[0], first=True)
    if op.is_square:
        cases["whole tiles"] = op.case((64,) * len(op.dims), dtype)
    return Problems(cases, lambda case: Problem(case, 0, CPU))


def test_there_are_enough_of_them() -> None:
    assert {right.operation for right in RIGHT} == set(ops.alone())
    assert len(RIGHT) >= LEAST
    assert len(CUDA_FILES) >= LEAST_CUDA
    assert len({right.name for right in (*RIGHT, *CUDA_FILES)}) == len(RIGHT) + len(CUDA_FILES)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy warns of overflow, which some cases have
@pytest.mark.parametrize(
    ("right", "dtype"),
    [
        pytest.param(
            right,
            dtypes_of(right)[place % len(dtypes_of(right))],
            id=right.name,
            marks=thorough_unless(right.name in IN_MAKE_TEST),
        )
        for place, right in enumerate(RIGHT)
    ],
)
def test_a_right_kernel_is_not_refused(right: Right, dtype: str) -> None:
    """Each is called in one dtype. NumPy has no bfloat16, and Triton's interpreter truncates it."""
    found = probe(lambda case: right.function, frameworks.get(right.framework), problems(right.operation, dtype))
    assert found.reason == "", f"{found.reason}; {found.diagnosis.text}"
    assert found.not_covered == {}
    assert len(found.passed) >= 3


@pytest.mark.skipif(missing("cpu") is not None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    "right",
    [pytest.param(right, id=right.name, marks=thorough_unless(right.name in IN_MAKE_TEST)) for right in CUDA_FILES],
)
def test_a_right_cuda_kernel_is_not_refused(right: Right) -> None:
    """Public kernels take some sizes and types only, and decline the others."""
    found = probe(lambda case: right.function, frameworks.get("cuda"), problems(right.operation, "float32"))
    assert found.reason == "", f"{found.reason}; {found.diagnosis.text}"
    assert found.passed
