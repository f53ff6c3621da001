"""Sums of matmul in parts, and its operands in padded copies."""

from __future__ import annotations

import pytest
import torch
from thinning import crossed, named

from suite import ops
from suite.checking.check import check
from suite.checking.problem import Problem
from suite.implementations import builtin
from suite.problem.case import Case
from triton_kernels._common.padding import VECTOR, both_zero_padded
from triton_kernels.matmul import auto, parts, pipelined
from triton_kernels.matmul._add_parts import add_strided_parts
from triton_kernels.matmul._few import Few, multiply_few

OP = ops.get("matmul")


def operands(layout: str, M: int, N: int, K: int) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = (
        torch.randn(size[::-1]).half().t() if letter == "t" else torch.randn(size).half()
        for letter, size in zip(layout, ((M, K), (K, N)), strict=True)
    )
    return a, b


@pytest.mark.parametrize(
    ("layout", "padded", "shape"),
    crossed(
        named(["nn", "tn", "nt", "tt"]),
        {"plain": False, "padded": True},
        named([(33, 65, 600), (64, 40, 301), (37, 263, 520)]),
    ),
)
def test_parts_add_up_and_copies_end_with_zeros(layout: str, padded: bool, shape: tuple[int, int, int]) -> None:
    a, b = operands(layout, *shape)
    c = torch.empty(shape[:2], dtype=torch.float16)
    left, right, aligned = a, b, [pipelined.alignment(x) for x in (a, b)]
    if padded:
        left, right = auto.padded(a, b, aligned)
        aligned = [VECTOR, VECTOR]
    parts.launch_parts(left, right, c, None, None, "ieee", 256, *aligned)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(
    ("layout", "shape", "count"),
    crossed(named(["nn", "tn", "nt", "tt"]), named([(1, 67, 530), (3, 64, 512), (1, 1, 3)]), named([1, 2])),
)
def test_few_rows_on_cuda_cores(layout: str, shape: tuple[int, int, int], count: int) -> None:
    a, b = operands(layout, *shape)
    c = torch.empty(shape[:2], dtype=torch.float16)
    multiply_few(Few(16, 4, count), a, b, c)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-3, atol=1e-2)


def test_two_matrices_are_padded_at_once() -> None:
    a, b = operands("nt", 5, 21, 300)
    for x, padded in zip((a, b), both_zero_padded(a, b), strict=True):
        assert torch.equal(x, padded)
        assert max(padded.stride()) % 8 == 0
        assert (padded.stride(0) < padded.stride(1)) == (x.stride(0) < x.stride(1))


def test_parts_of_rows_with_a_pitch() -> None:
    sums = torch.randn(3, 16, 8)
    out = torch.empty(13, 5)
    add_strided_parts(sums[:, :13, :5], out)
    torch.testing.assert_close(out, sums[:, :13, :5].sum(0))
    add_strided_parts(sums[:, :5, :3].transpose(1, 2), transposed := torch.empty(3, 5))
    torch.testing.assert_close(transposed, sums[:, :5, :3].sum(0).t())


def judged(op: str, name: str, case: Case) -> None:
    line = next(each for each in builtin.implementations(op) if each.name == name)
    found = check(line.function, line.adapter, Problem(case, 1, torch.device("cuda")))
    assert found.agrees, f"{found.reason} (error / bound {found.error_ratio:.3g})"


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape", [(128, 128, 32768), (17, 250, 5001), (1001, 1003, 1005), (2, 855, 7379), (1501, 1528, 776)], ids=str
)
@pytest.mark.parametrize("layout", ["nn", "tt", "nt"])
@pytest.mark.parametrize("name", ["triton", "triton/pipelined", "triton/parts", "triton/auto", "triton/gluon"])
def test_long_sums_and_odd_rows_on_a_gpu(name: str, layout: str, shape: tuple[int, int, int]) -> None:
    judged("matmul", name, OP.case(shape, "bfloat16", layout=layout))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(16, 4096, 4096), (144, 160, 32768), (1504, 1536, 768)], ids=str)
@pytest.mark.parametrize(("dtype", "precision"), [("float32", "tf32"), ("float8_e4m3fn", "fast")])
def test_other_types_by_the_same_plans_on_a_gpu(dtype: str, precision: str, shape: tuple[int, int, int]) -> None:
    judged("matmul", "triton/gluon", OP.case(shape, dtype, precision))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(16, 8192, 2048), (1, 100, 72), (33, 1000, 777), (1536, 1536, 264)], ids=str)
def test_linear_sigmoid_by_the_same_plans_on_a_gpu(shape: tuple[int, int, int]) -> None:
    judged("linear_sigmoid", "triton/gluon", ops.get("linear_sigmoid").case(shape, "bfloat16"))
