"""Every implementation of an operation over ranks agrees with float64 on all ranks, on all telling cases."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator
from functools import partial

import pytest

from suite import ops
from suite.hardware.device import resolve
from suite.results.row import Row, Status
from suite.runner.compare import compare
from suite.runner.options import Options
from suite.runner.plan import Job, plan
from suite.runner.selection import Selection

OVER_RANKS = [name for name in ops.names() if ops.over_ranks(name)]
OWN = ("triton", "cuda")
FRAMEWORKS = ("torch", "jax", *OWN)

FAILS_ON_GPUS = {("all_gather_matmul", "jax"): ("jax/pallas",)}
"""NCCL 2.28 does not give JAX's kernel the addresses of the other ranks' memory: ncclGetPeerDevicePointer fails."""
LONG = {
    "all_reduce": ("triton",),
    "all_gather_matmul": ("jax",),
    "matmul_reduce_scatter": ("jax",),
    "ring_attention": ("triton", "jax"),
    "data_parallel_grad": ("triton",),
}
"""Implementations left out of the telling cases of an operation. Triton's interpreter runs a program for each of a
thousand heads, and XLA compiles each case twice, so each of the two has some operations. Three ranks and GPUs, below,
have all."""


def jobs_of(
    name: str,
    ranks: int,
    *dtypes: str,
    lines: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    device: str = "cpu",
) -> list[Job]:
    size = ops.get(name).usual_shape
    shape = ",".join(f"{dim}={each}" for dim, each in zip(ops.get(name).dims, size, strict=True))
    names = Selection((name,), lines, exclude, shapes=(shape,), dtypes=dtypes, precisions=("ieee",), ranks=ranks)
    return plan(names, resolve(device))


def rows_of(jobs: Iterable[Job], device: str = "cpu", **options: bool) -> list[Row]:
    """The rows of one run: the same ranks, which import every framework when they begin, run all operations."""
    return compare([*jobs], Options(resolve(device), **{"timed": False, **options}))  # type: ignore[arg-type]


def frameworks_of(rows: Iterable[Row]) -> dict[str, set[str]]:
    """The frameworks of each operation's rows."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row.operation, set()).add(row.implementation.partition("/")[0])
    return found


@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(900)
@pytest.mark.thorough
def test_all_lines_agree_on_two_ranks_and_on_the_telling_cases() -> None:
    frameworks = {name: {*FRAMEWORKS} - {*LONG.get(name, ())} for name in OVER_RANKS}
    jobs = [
        job
        for name, chosen in frameworks.items()
        for job in jobs_of(name, 2, "float32", lines=tuple(f"{each}*" for each in sorted(chosen)))
    ]
    ran = [row for row in rows_of(jobs, telling=True, every_telling=True) if row.status is not Status.UNSUPPORTED]
    assert frameworks_of(ran) == frameworks
    assert [(row.operation, row.implementation, row.reason) for row in ran if row.status is not Status.OK] == []
    assert all(len(row.checked.split(", ")) >= 12 and row.ranks == 2 for row in ran)
    assert all("gloo" in row.versions for row in ran)


@pytest.mark.slow(seconds=30)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["some", "all"])
def test_all_lines_agree_on_three_ranks(every: bool) -> None:
    """In `make test` each operation's kernels in Triton and CUDA, and one operation's in every framework."""
    frameworks = {name: {*FRAMEWORKS} if every or name == OVER_RANKS[0] else {*OWN} for name in OVER_RANKS}
    jobs = [
        job
        for name, chosen in frameworks.items()
        for job in jobs_of(name, 3, "bfloat16", lines=tuple(f"{each}*" for each in sorted(chosen)))
    ]
    ran = [row for row in rows_of(jobs) if row.status is not Status.UNSUPPORTED]
    assert frameworks_of(ran) == frameworks
    assert [(row.operation, row.implementation, row.reason) for row in ran if row.status is not Status.OK] == []


@pytest.fixture
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ranks wait for each other inside kernels: those of two tests, on the same GPUs, may wait forever."""
    with (tmp_path_factory.getbasetemp().parent / "ranks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.two_gpus
@pytest.mark.timeout(1800)  # a first run builds the CUDA sources; other processes may run such tests before
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", OVER_RANKS)
@pytest.mark.usefixtures("one_at_a_time")
def test_all_lines_agree_on_two_gpus_and_are_timed(name: str, framework: str) -> None:
    """The telling cases are for our kernels: cuDNN and XLA prepare a plan or a program for each of them."""
    left_out = FAILS_ON_GPUS.get((name, framework), ())
    chosen = partial(jobs_of, name, 2, lines=(f"{framework}*",), exclude=left_out, device="cuda")
    rows = rows_of(chosen("float32"), "cuda", timed=True)
    rows += rows_of(chosen("bfloat16"), "cuda", timed=True, telling=framework in OWN)
    ran = [row for row in rows if row.status is not Status.UNSUPPORTED]
    assert frameworks_of(ran) == {name: {framework}}
    assert [(row.implementation, row.dtype, row.reason) for row in ran if row.status is not Status.OK] == []
    assert all(row.device_us and row.bus_gb_per_s for row in ran)
