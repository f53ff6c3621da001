"""block_scaled_matmul for Hopper on a CPU: the kernels' own text, with TMA, mbarriers and wgmma emulated."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.block_scaled_matmul import few, wgmma
from cuda_ref.matmul._tiles import Plan
from suite import ops
from suite.checking.judge import judge

# M, N, K; family; tile of wgmma8, or "few"; parts of k
CASES = [
    pytest.param((70, 140, 304), "uneven", 0, 1, id="the last group, tile and block are not full"),
    pytest.param((64, 24, 1040), "zero_scales", 0, 1, id="stages are used again"),
    pytest.param((136, 130, 272), "normal", 2, 1, id="two consumers, rows of 4 bytes"),
    pytest.param((136, 130, 1040), "uneven", 2, 1, id="two consumers, stages are used again"),
    pytest.param((70, 136, 528), "uneven", 0, 2, id="parts of k"),
    pytest.param((5, 140, 1040), "uneven", "few", 1, id="few rows"),
    pytest.param((37, 70, 272), "uneven", "few", 1, id="37 rows"),
]


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize(("size", "family", "tile", "parts"), CASES)
def test_products_agree(
    emulated: None, nan_outputs: None, size: tuple[int, ...], family: str, tile: int | str, parts: int
) -> None:
    op = ops.get("block_scaled_matmul")
    case = op.case(size, inputs=family)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    out = (
        few.run(Plan("skinny8", 1, parts), *inputs)
        if tile == "few"
        else wgmma.run(Plan("wgmma8", tile, parts), *inputs)
    )
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason
