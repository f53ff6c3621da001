"""One product of all ranks' rows before one sum: what `cuda/auto` of matmul_reduce_scatter does for few rows."""

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
from cuda_ref.matmul_reduce_scatter._whole import PACK, summed

def matmul_reduce_scatter(x, w, *, group, precision="ieee"):
    M, N = x.shape[0] // group.size(), w.shape[1]
    if M * N * x.shape[1] == 0:
        return x.new_zeros(M, N)
    if M * N * x.element_size() % PACK:
        raise NotImplementedError("matmul_reduce_scatter: rows must fill whole packs")
    return summed(lambda into: into.copy_(x.float() @ w.float()), M, N, x.dtype, x.device, group)
"""


@pytest.mark.slow(seconds=25)
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_one_product_before_one_sum_agrees(tmp_path: Path, ranks: int) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    selection = Selection(
        ("matmul_reduce_scatter",), ("torch",), excluded=("torch",), dtypes=("bfloat16", "float32"),
        shapes=("M=64,N=96,K=40", "M=7,N=264,K=33"), files=(path,), ranks=ranks,
    )  # fmt: skip
    rows = compare(plan(selection, resolve("cpu")), Options(resolve("cpu"), timed=False))
    assert len(rows) >= 4
    assert [(row.case, row.status, row.reason) for row in rows if row.status is not Status.OK] == []
