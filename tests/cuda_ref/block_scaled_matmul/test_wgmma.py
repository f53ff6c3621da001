"""block_scaled_matmul on a Hopper GPU: every plan, several tiles of each block, equal bits in each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from cuda_ref.block_scaled_matmul import few, wgmma
from cuda_ref.matmul import _model_tf32_float8
from cuda_ref.matmul._tiles import SKINNY_COLUMNS, Plan
from suite import ops
from suite.checking.judge import judge

REPEATS = 4
# M, N, K: edges in all dimensions; rows that TMA reads, or that are copied; several tiles of each block
SHAPES = [(70, 130, 200), (129, 257, 1031), (300, 513, 4112), (4104, 4104, 1040), (2, 8, 16)]


def check(function: Callable[..., Tensor], shape: tuple[int, ...], device: torch.device, what: object) -> None:
    """Each of several calls in a row agrees with float64, and has the same bits."""
    op = ops.get("block_scaled_matmul")
    for family in ("uneven", "exact_sums"):
        case = op.case(shape, inputs=family)
        inputs = op.make_inputs(case, 1, device)
        first, *others = [function(*inputs) for _ in range(REPEATS)]
        verdict = judge(first, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
        assert verdict.agrees, f"{what} {case.label} {family}: {verdict.reason}"
        assert all(torch.equal(first, each) for each in others), f"{what} {case.label}: another call, another result"


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_plan(hopper: torch.device, nan_outputs: None, shape: tuple[int, ...]) -> None:
    M, N, K = shape
    a, b = (torch.empty(rows, K, dtype=torch.float8_e4m3fn, device=hopper) for rows in (M, N))
    problem = _model_tf32_float8.problem_of(a, b.mT, "promoted")
    plans = wgmma.plans_of(problem)
    assert {plan.tile for plan in plans} == set(wgmma.COMPILED)
    for plan in plans:
        check(partial(wgmma.run, plan), shape, hopper, plan)


@pytest.mark.gpu
@pytest.mark.parametrize("M", [1, 8, 16, 17, 33, 64])
def test_clusters_of_few_rows(hopper: torch.device, nan_outputs: None, M: int) -> None:
    for parts in (1, 2, 4, 8):
        plan = Plan("skinny8", SKINNY_COLUMNS.index(few.COLUMNS), parts)
        for N, K in ((8, 1024), (131, 1031), (1000, 4112), (20_000, 1536)):
            check(partial(few.run, plan), (M, N, K), hopper, plan)
