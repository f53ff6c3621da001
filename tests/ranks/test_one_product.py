"""One product of all ranks' rows, before a sum or after a gather: what `cuda/auto` does for few rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.hardware.device import resolve
from suite.results.row import Status
from suite.runner.compare import compare
from suite.runner.options import Options
from suite.runner.plan import plan
from suite.runner.selection import Selection

MINE = """
from cuda_ref.all_reduce._shares import PACK, all_gather, reduce_scatter

def all_gather_matmul(x, w, *, group, precision="ieee"):
    if x.numel() == 0:
        return x.new_zeros(group.size() * x.shape[0], w.shape[1])
    return (all_gather(x, group).float() @ w.float()).to(x.dtype)

def matmul_reduce_scatter(x, w, *, group, precision="ieee"):
    M, N = x.shape[0] // group.size(), w.shape[1]
    if M * N * x.shape[1] == 0:
        return x.new_zeros(M, N)
    if M * N * x.element_size() % PACK:
        raise NotImplementedError("matmul_reduce_scatter: rows must fill whole packs")
    return reduce_scatter((x.float() @ w.float()).to(x.dtype), group)
"""


@pytest.mark.slow(seconds=25)
@pytest.mark.thorough  # test_agreement.py has cuda/auto, with few rows too
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", ["matmul_reduce_scatter", "all_gather_matmul"])
def test_one_product_agrees(tmp_path: Path, name: str, ranks: int) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    selection = Selection(
        (name,), ("torch",), excluded=("torch",), dtypes=("bfloat16", "float32"),
        shapes=("M=64,N=96,K=40", "M=7,N=264,K=33", "M=1,N=8,K=3"), files=(path,), ranks=ranks,
    )  # fmt: skip
    rows = compare(plan(selection, resolve("cpu")), Options(resolve("cpu"), timed=False))
    assert len(rows) >= 4
    assert [(row.case, row.status, row.reason) for row in rows if row.status is not Status.OK] == []
