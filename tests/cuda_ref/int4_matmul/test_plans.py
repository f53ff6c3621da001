"""int4_matmul on a Hopper GPU: every plan, several tiles of each block, equal bits in each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from cuda_ref.int4_matmul import auto, few, few_wgmma, wgmma
from cuda_ref.matmul._tiles import Plan
from suite import ops
from suite.checking.judge import judge

REPEATS = 3
# M, N, K: edges in all dimensions; rows that are read as they are, or copied; several tiles of each block
SHAPES = [(70, 130, 200), (129, 257, 1031), (300, 520, 4128), (2100, 4104, 1056), (2, 8, 16)]


def check(function: Callable[..., Tensor], shape: tuple[int, ...], device: torch.device, what: object) -> None:
    """Each of several calls in a row agrees with float64, and has the same bits."""
    op = ops.get("int4_matmul")
    for dtype, family, zeros in (("bfloat16", "uneven", True), ("float16", "exact_products", False)):
        case = op.case(shape, dtype, inputs=family, zeros=zeros)
        inputs = op.make_inputs(case, 1, device)
        first, *others = [function(*inputs) for _ in range(REPEATS)]
        verdict = judge(first, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
        assert verdict.agrees, f"{what} {case.label} {family}: {verdict.reason}"
        assert all(torch.equal(first, each) for each in others), f"{what} {case.label}: another call, another result"


@pytest.mark.gpu
@pytest.mark.parametrize("rows", wgmma.ROWS)
def test_every_tile(hopper: torch.device, nan_outputs: None, rows: int) -> None:
    for shape in SHAPES:
        check(partial(wgmma.run, rows), shape, hopper, rows)


@pytest.mark.gpu
@pytest.mark.parametrize("M", [1, 8, 9, 16])
@pytest.mark.parametrize("parts", few.PARTS)
def test_plans_of_few_rows(hopper: torch.device, nan_outputs: None, parts: int, M: int) -> None:
    for rows in few.ROWS:
        # parts without terms of K, and tiles in several turns, are among these
        for N, K in ((8, 1024), (131, 1031), (1000, 4128), (40_000, 1536)):
            plan = Plan("int4_few", rows, parts)
            check(partial(few.run, plan), (M, N, K), hopper, plan)


@pytest.mark.gpu
@pytest.mark.parametrize("M", [1, 8, 9, 16, 17, 32, 33, 64])
@pytest.mark.parametrize("parts", few.PARTS)
def test_plans_of_few_rows_by_wgmma(hopper: torch.device, nan_outputs: None, parts: int, M: int) -> None:
    for rows in few_wgmma.OF_A_BOX[32 if M <= 32 else 64]:
        for N, K in ((8, 1024), (131, 1031), (1000, 4128), (40_000, 1536)):
            plan = Plan("int4_few_wgmma", rows, parts)
            check(partial(few_wgmma.run, plan), (M, N, K), hopper, plan)


def test_rows_choose_the_kernel() -> None:
    rows = (1, 16, 17, 64, 65)
    chosen = [auto.choose(torch.empty(each, 128, device="meta")) for each in rows]
    assert chosen == ["few", "few", "few_wgmma", "few_wgmma", "wgmma"]


def test_a_plan_of_few_rows_suits_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few, "multiprocessors", lambda _: 132)
    x, weight = torch.empty(8, 4096, device="meta"), torch.empty(4096, 2048, device="meta")
    monkeypatch.setattr(type(x), "is_cuda", True, raising=False)
    assert few.choose(x, weight) == Plan("int4_few", 32, 1), "larger tiles would leave multiprocessors idle"
    assert few.choose(x, weight[:512]).parts > 1, "16 tiles of 32 rows would leave most of them idle"
    assert few.choose(x[:, :256], weight).parts == 1, "K is one box"
    assert few.choose(x, weight.repeat(7, 1)) == Plan("int4_few", 224, 1), "128 large tiles are one turn"
    long = torch.empty(32, 28672, device="meta")
    found = few_wgmma.choose(long, torch.empty(8192, 14336, device="meta"))
    assert found == Plan("int4_few_wgmma", 64, 1), "as fast as two blocks for tiles of 128 rows, which add their sums"
    uneven = few.choose(x[:, :1].expand(8, 17408), torch.empty(5120, 8704, device="meta"))
    assert uneven == Plan("int4_few", 96, 2), "54 tiles of 96 rows use more multiprocessors than 80 of 64"
