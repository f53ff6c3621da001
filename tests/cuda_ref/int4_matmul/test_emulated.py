"""int4_matmul for Hopper on a CPU: the kernels' own text, with the instructions of Hopper emulated."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.int4_matmul import few, few_wgmma, wgmma
from cuda_ref.matmul._tiles import Plan
from suite import ops
from suite.checking.judge import judge

# M, N, K; dtype; family; zero points; rows of a tile of wgmma, or of few
CASES = [
    pytest.param((5, 70, 300), "bfloat16", "uneven", False, "few 64", id="the last group and tile are not full"),
    pytest.param((9, 300, 5920), "float16", "uneven", True, "few 64", id="several tiles and turns of stages"),
    pytest.param((3, 260, 1440), "float16", "uneven", True, "few 32", id="warps with one group of a box"),
    pytest.param((16, 600, 2080), "bfloat16", "cancellation", False, "few 224", id="16 rows, several tiles"),
    pytest.param((7, 200, 31), "float16", "strided", True, "few 96", id="one group, operands are copied"),
    pytest.param((5, 300, 5920), "float16", "uneven", True, "few_wgmma 64", id="warpgroups divide a step"),
    pytest.param((9, 70, 300), "float16", "uneven", True, "few_wgmma 64", id="two tiles of x, by wgmma"),
    pytest.param((32, 600, 2080), "bfloat16", "cancellation", False, "few_wgmma 224", id="14 rows of a warp"),
    pytest.param((17, 9, 31), "float16", "strided", True, "few_wgmma 128", id="one group, by wgmma"),
    pytest.param((20, 300, 1440), "bfloat16", "uneven", True, "few_wgmma 256", id="a large tile of few rows"),
    pytest.param((5, 400, 1440), "bfloat16", "uneven", False, "few_wgmma 192", id="three warpgroups"),
    pytest.param((33, 200, 2080), "bfloat16", "uneven", True, "few_wgmma 64", id="64 rows of x, two warpgroups"),
    pytest.param((64, 300, 1440), "float16", "cancellation", False, "few_wgmma 128", id="64 rows, several tiles"),
    pytest.param((70, 140, 300), "bfloat16", "uneven", True, 64, id="several tiles, copied, stored directly"),
    pytest.param((70, 136, 1088), "float16", "uneven", False, 128, id="stages of codes are used again"),
    pytest.param((100, 8, 448), "bfloat16", "exact_products", True, 256, id="stages of x are used again"),
]


@pytest.mark.slow(seconds=25)
@pytest.mark.parametrize(("size", "dtype", "family", "zeros", "kernel"), CASES)
def test_products_agree(
    emulated: None, nan_outputs: None, size: tuple[int, ...], dtype: str, family: str, zeros: bool, kernel: int | str
) -> None:
    op = ops.get("int4_matmul")
    case = op.case(size, dtype, inputs=family, zeros=zeros)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    if isinstance(kernel, str):
        name, rows = kernel.split()
        run = {"few": few, "few_wgmma": few_wgmma}[name].run
        out = run(Plan(f"int4_{name}", int(rows), 1), *inputs)
    else:
        out = wgmma.run(kernel, *inputs)
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
    assert verdict.agrees, verdict.reason
