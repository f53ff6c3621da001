"""Products over groups of rows for Hopper on a CPU: the kernels' own text, with TMA, mbarriers and wgmma emulated."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.grouped_matmul.wgmma import grouped_matmul
from cuda_ref.grouped_matmul_grad.wgmma import grouped_matmul_grad
from suite import ops
from suite.checking.judge import judge

# T, E, K, N, and the rows of the experts; each K and N more than a tile or a step, and no multiple
CASES = [
    pytest.param((300, 4, 72, 264), "edges", False, id="whole tiles and parts of tiles"),
    pytest.param((290, 3, 200, 40), "skewed", True, id="weights contiguous along K"),
    pytest.param((200, 2, 136, 33), "uniform", True, id="rows of out are no multiples of 16 bytes"),
    pytest.param((70, 67, 72, 136), "empty", False, id="more experts than lanes, few rows"),
    pytest.param((90, 1, 8, 8), "one", False, id="one expert"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "sizes", "transposed"), CASES)
def test_products_agree(emulated: None, nan_outputs: None, size: tuple[int, ...], sizes: str, transposed: bool) -> None:
    op = ops.get("grouped_matmul")
    case = op.case(size, "bfloat16", sizes=sizes, inputs="unused_nan")
    x, weight, rows = op.make_inputs(case, 1, torch.device("cpu"))
    stored = weight.mT.contiguous().mT if transposed else weight
    verdict = judge(
        grouped_matmul(x, stored, rows), op.truth((x, weight, rows), case), shape=(size[0], size[3]), dtype="bfloat16"
    )
    assert verdict.agrees, verdict.reason


GRADIENTS = [
    pytest.param((300, 4, 136, 264), "edges", id="whole steps and parts of steps"),
    pytest.param((290, 3, 8, 33), "skewed", id="rows of out are no multiples of 16 bytes"),
    pytest.param((70, 67, 72, 16), "empty", id="more experts than lanes, most without rows"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "sizes"), GRADIENTS)
def test_gradients_agree(emulated: None, nan_outputs: None, size: tuple[int, ...], sizes: str) -> None:
    op = ops.get("grouped_matmul_grad")
    case = op.case(size, "bfloat16", sizes=sizes, inputs="nan")
    x, dy, rows = op.make_inputs(case, 1, torch.device("cpu"))
    given = x, dy if size[3] % 8 == 0 else torch.nn.functional.pad(dy, (0, -size[3] % 8))[:, : size[3]], rows
    verdict = judge(grouped_matmul_grad(*given), op.truth((x, dy, rows), case), shape=(size[1:]), dtype="bfloat16")
    assert verdict.agrees, verdict.reason
