"""Products of experts in float8 for Hopper on a CPU: the kernel's own text, with TMA, mbarriers and wgmma emulated."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.grouped_block_scaled_matmul.wgmma import run
from cuda_ref.grouped_matmul.wgmma import LARGE, SMALL
from suite import ops
from suite.checking.judge import judge

# T, E, K, N; the rows of the experts; family; tile. Each K and N is more than a tile or a step, and no multiple.
CASES = [
    pytest.param((300, 4, 272, 264), "edges", "uneven", LARGE, id="whole tiles and parts of tiles"),
    pytest.param((140, 3, 1040, 33), "skewed", "zero_scales", SMALL, id="stages are used again, rows of odd length"),
    pytest.param((70, 67, 144, 136), "empty", "unused_nan", SMALL, id="more experts than lanes, few rows"),
    pytest.param((90, 1, 16, 8), "one", "normal", LARGE, id="one expert"),
    pytest.param((200, 3, 784, 264), "empty", "uneven", LARGE, id="stages are used again, an empty expert"),
]


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize(("size", "sizes", "family", "tile"), CASES)
def test_products_agree(
    emulated: None, nan_outputs: None, size: tuple[int, ...], sizes: str, family: str, tile: int
) -> None:
    op = ops.get("grouped_block_scaled_matmul")
    case = op.case(size, sizes=sizes, inputs=family)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    verdict = judge(run(tile, *inputs), op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason
