"""Every implementation of an operation over ranks agrees with float64 on all ranks, on all telling cases."""

from __future__ import annotations

import pytest

from suite import ops
from suite.hardware.device import resolve
from suite.results.row import Row, Status
from suite.runner.compare import compare
from suite.runner.options import Options
from suite.runner.plan import plan
from suite.runner.selection import Selection

OVER_RANKS = [name for name in ops.names() if ops.over_ranks(name)]

LONG = ("ring_attention",)
"""Operations whose telling cases take more than five minutes on two cores. Three ranks and GPUs run them below."""


def rows_of(name: str, ranks: int, *dtypes: str, device: str = "cpu", **options: bool) -> list[Row]:
    where = resolve(device)
    size = ops.get(name).usual_shape
    shape = ",".join(f"{dim}={each}" for dim, each in zip(ops.get(name).dims, size, strict=True))
    selection = Selection((name,), shapes=(shape,), dtypes=dtypes, precisions=("ieee",), ranks=ranks)
    return compare(plan(selection, where), Options(where, **{"timed": False, **options}))  # type: ignore[arg-type]


@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in OVER_RANKS if name not in LONG])
def test_all_lines_agree_on_two_ranks_and_on_the_telling_cases(name: str) -> None:
    rows = rows_of(name, 2, "float32", telling=True)
    ran = [row for row in rows if row.status is not Status.UNSUPPORTED]
    assert {row.implementation.partition("/")[0] for row in ran} == {"torch", "jax", "triton", "cuda"}
    assert [(row.implementation, row.dtype, row.reason) for row in ran if row.status is not Status.OK] == []
    assert all(len(row.checked.split(", ")) >= 12 and row.ranks == 2 for row in ran)
    assert all("gloo" in row.versions for row in ran)


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("name", OVER_RANKS)
def test_all_lines_agree_on_three_ranks(name: str) -> None:
    rows = rows_of(name, 3, "bfloat16")
    assert {(row.status, row.reason) for row in rows if row.status is not Status.UNSUPPORTED} == {(Status.OK, "")}


@pytest.mark.two_gpus
@pytest.mark.parametrize("name", OVER_RANKS)
def test_all_lines_agree_on_two_gpus_and_are_timed(name: str) -> None:
    rows = rows_of(name, 2, "float32", "bfloat16", device="cuda", timed=True, telling=True)
    ran = [row for row in rows if row.status is not Status.UNSUPPORTED]
    assert {row.implementation.partition("/")[0] for row in ran} == {"torch", "jax", "triton", "cuda"}
    assert [(row.implementation, row.dtype, row.reason) for row in ran if row.status is not Status.OK] == []
    assert all(row.device_us and row.bus_gb_per_s for row in ran)
