"""Products over groups of rows on a Hopper GPU: every tile, several tiles of each block, equal bits in each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from cuda_ref.grouped_matmul.wgmma import LARGE, PAIRED, SMALL, run
from cuda_ref.grouped_matmul_grad.wgmma import grouped_matmul_grad
from suite import ops
from suite.checking.judge import judge
from suite.problem.case import Case
from suite.problem.expert_sizes import KINDS

REPEATS = 4
# T, E, K, N: several tiles of each block; more experts than lanes; fewer rows than a tile; rows that TMA cannot store
SHAPES = [(9000, 9, 200, 1032), (3000, 67, 1096, 520), (70, 3, 72, 40), (2500, 5, 136, 1033)]


def check(function: Callable[..., Tensor], case: Case, device: torch.device) -> None:
    """Each of several calls in a row agrees with float64, and has the same bits."""
    op = ops.operation(case)
    inputs = op.make_inputs(case, 1, device)
    first, *others = [function(*inputs) for _ in range(REPEATS)]
    verdict = judge(first, op.truth(inputs, case), shape=op.output_shape(case), dtype=case.dtype)
    assert verdict.agrees, f"{case.label}: {verdict.reason}"
    assert all(torch.equal(first, each) for each in others), f"{case.label}: another call gives another result"


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("sizes", KINDS)
@pytest.mark.parametrize("tile", [SMALL, LARGE, PAIRED], ids=["small", "large", "paired"])
def test_every_tile(hopper: torch.device, nan_outputs: None, tile: int, sizes: str, shape: tuple[int, ...]) -> None:
    op = ops.get("grouped_matmul")
    for layout in ("nn", "nt") if shape[3] % 8 == 0 else ("nt",):
        check(partial(run, tile), op.case(shape, "bfloat16", sizes=sizes, layout=layout), hopper)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(3000, 40, 392, 520), (5000, 67, 136, 264), (70, 3, 72, 40)], ids=str)
@pytest.mark.parametrize("sizes", KINDS)
def test_gradients(hopper: torch.device, nan_outputs: None, sizes: str, shape: tuple[int, ...]) -> None:
    check(grouped_matmul_grad, ops.get("grouped_matmul_grad").case(shape, "bfloat16", sizes=sizes), hopper)


@pytest.mark.gpu
def test_sizes_of_a_graph_may_change(hopper: torch.device) -> None:
    """They are read on the device, in each replay."""
    op = ops.get("grouped_matmul")
    x, weight, _ = op.make_inputs(op.case((600, 4, 72, 264), "bfloat16"), 1, hopper)
    divisions = [torch.tensor(each, dtype=torch.int32, device=hopper) for each in ([600, 0, 0, 0], [1, 300, 63, 236])]
    for tile in (SMALL, LARGE, PAIRED):
        expected = [run(tile, x, weight, each) for each in divisions]
        sizes, graph = divisions[0].clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = run(tile, x, weight, sizes)
        for division, right in zip(divisions, expected, strict=True):
            sizes.copy_(division)
            graph.replay()
            assert torch.equal(out, right)
