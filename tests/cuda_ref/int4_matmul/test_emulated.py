"""int4_matmul for Hopper on a CPU: the kernels' own text, with the instructions of Hopper emulated."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.int4_matmul import few
from suite import ops
from suite.checking.judge import judge

# M, N, K; dtype; family; zero points
CASES = [
    pytest.param((5, 70, 300), "bfloat16", "uneven", False, id="the last group and tile are not full"),
    pytest.param((9, 140, 1440), "float16", "uneven", True, id="every warp has several groups, zero points"),
    pytest.param((32, 64, 512), "bfloat16", "cancellation", False, id="32 rows"),
    pytest.param((17, 9, 31), "float16", "strided", True, id="one group, operands are copied"),
]


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize(("size", "dtype", "family", "zeros"), CASES)
def test_few_rows_agree(
    emulated: None, nan_outputs: None, size: tuple[int, ...], dtype: str, family: str, zeros: bool
) -> None:
    op = ops.get("int4_matmul")
    case = op.case(size, dtype, inputs=family, zeros=zeros)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    out = few.run(few.choose(*inputs[:2]), *inputs)
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
    assert verdict.agrees, verdict.reason
