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

FAILS_ON_GPUS = {"jax/pallas"}
"""NCCL 2.28 does not give JAX's kernel the addresses of the other ranks' memory: ncclGetPeerDevicePointer fails."""
LONG = {"ring_attention": ("triton", "jax"), "data_parallel_grad": ("triton",)}
"""Implementations that spend most of a minute on the telling cases of an operation: Triton's interpreter runs a program
for each of a thousand heads, and XLA compiles each case twice. `--all-cases` runs these too; three ranks and GPUs run
all of them below."""


def rows_of(
    name: str, ranks: int, *dtypes: str, lines: tuple[str, ...] = (), device: str = "cpu", **options: bool
) -> list[Row]:
    where = resolve(device)
    size = ops.get(name).usual_shape
    shape = ",".join(f"{dim}={each}" for dim, each in zip(ops.get(name).dims, size, strict=True))
    selection = Selection((name,), lines, shapes=(shape,), dtypes=dtypes, precisions=("ieee",), ranks=ranks)
    return compare(plan(selection, where), Options(where, **{"timed": False, **options}))  # type: ignore[arg-type]


@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", OVER_RANKS)
def test_all_lines_agree_on_two_ranks_and_on_the_telling_cases(name: str, request: pytest.FixtureRequest) -> None:
    left_out = () if request.config.getoption("all_cases") else LONG.get(name, ())
    frameworks = [each for each in ("torch", "jax", "triton", "cuda") if each not in left_out]
    rows = rows_of(name, 2, "float32", lines=tuple(f"{each}*" for each in frameworks), telling=True)
    ran = [row for row in rows if row.status is not Status.UNSUPPORTED]
    assert {row.implementation.partition("/")[0] for row in ran} == set(frameworks)
    assert [(row.implementation, row.dtype, row.reason) for row in ran if row.status is not Status.OK] == []
    assert all(len(row.checked.split(", ")) >= 12 and row.ranks == 2 for row in ran)
    assert all("gloo" in row.versions for row in ran)


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("name", OVER_RANKS)
def test_all_lines_agree_on_three_ranks(name: str) -> None:
    rows = rows_of(name, 3, "bfloat16")
    assert {(row.status, row.reason) for row in rows if row.status is not Status.UNSUPPORTED} == {(Status.OK, "")}


@pytest.mark.two_gpus
@pytest.mark.timeout(900)  # a first run builds the CUDA sources
@pytest.mark.parametrize("name", OVER_RANKS)
def test_all_lines_agree_on_two_gpus_and_are_timed(name: str) -> None:
    rows = rows_of(name, 2, "float32", "bfloat16", device="cuda", timed=True, telling=True)
    ran = [row for row in rows if row.status is not Status.UNSUPPORTED and row.implementation not in FAILS_ON_GPUS]
    assert {row.implementation.partition("/")[0] for row in ran} == {"torch", "jax", "triton", "cuda"}
    assert [(row.implementation, row.dtype, row.reason) for row in ran if row.status is not Status.OK] == []
    assert all(row.device_us and row.bus_gb_per_s for row in ran)
