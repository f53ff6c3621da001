"""Products of experts in float8 on a Hopper GPU: every tile, several tiles of each block, equal bits in each call."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.grouped_block_scaled_matmul.wgmma import run
from cuda_ref.grouped_matmul.wgmma import LARGE, PAIRED, SMALL
from suite import ops
from suite.checking.judge import judge
from suite.problem.expert_sizes import KINDS

REPEATS = 4
TILES = pytest.mark.parametrize("tile", [SMALL, LARGE, PAIRED], ids=["small", "large", "paired"])
# T, E, K, N: several tiles of each block; more experts than lanes; fewer rows than a tile; rows that TMA cannot store
SHAPES = [(9000, 9, 208, 1032), (3000, 67, 1104, 520), (70, 3, 80, 40), (2500, 5, 144, 1033)]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("sizes", KINDS)
@TILES
def test_every_tile(hopper: torch.device, nan_outputs: None, tile: int, sizes: str, shape: tuple[int, ...]) -> None:
    op = ops.get("grouped_block_scaled_matmul")
    for family in ("uneven", "exact_sums"):
        case = op.case(shape, sizes=sizes, inputs=family)
        inputs = op.make_inputs(case, 1, hopper)
        first, *others = [run(tile, *inputs) for _ in range(REPEATS)]
        verdict = judge(first, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
        assert verdict.agrees, f"{case.label}: {verdict.reason}"
        assert all(torch.equal(first, each) for each in others), f"{case.label}: another call gives another result"


@pytest.mark.gpu
@TILES
def test_sizes_of_a_graph_may_change(hopper: torch.device, tile: int) -> None:
    """They are read on the device, in each replay."""
    op = ops.get("grouped_block_scaled_matmul")
    *operands, _ = op.make_inputs(op.case((600, 4, 208, 264)), 1, hopper)
    divisions = [torch.tensor(each, dtype=torch.int32, device=hopper) for each in ([600, 0, 0, 0], [1, 300, 63, 236])]
    expected = [run(tile, *operands, each) for each in divisions]
    sizes, graph = divisions[0].clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(tile, *operands, sizes)
    for division, right in zip(divisions, expected, strict=True):
        sizes.copy_(division)
        graph.replay()
        assert torch.equal(out, right)
