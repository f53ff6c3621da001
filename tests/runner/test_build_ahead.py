"""Builds before a run: which are made, by which processes, and that a failed build cannot fail the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_worker import CPU, H200

from suite import ops
from suite.hardware.device import Device
from suite.runner.build_ahead import PROCESS_BYTES, build_ahead, builds
from suite.runner.options import Options
from suite.runner.plan import plan
from suite.runner.selection import Selection
from suite.worker.pool import WorkerDiedError
from suite.worker.protocol import BuildReply, BuildRequest, Failed

DTYPES = ("float32", "bfloat16")


class Worker:
    """A worker whose answers a function computes."""

    def __init__(self, answer: Callable[[BuildRequest], Any]) -> None:
        self.answer, self.closed = answer, False

    def ask(self, request: BuildRequest, timeout_s: float) -> Any:
        return self.answer(request)

    def close(self, wait_s: float) -> None:
        self.closed = True


class FakePool:
    def __init__(self, answer: Callable[[BuildRequest], Any], device: Device = CPU) -> None:
        self.device, self.workers, self.asked = device, list[Worker](), list[BuildRequest]()
        self.answer = answer

    def start(self) -> Worker:
        def answer(request: BuildRequest) -> Any:
            self.asked.append(request)
            return self.answer(request)

        self.workers.append(Worker(answer))
        return self.workers[-1]


def jobs(operation: str = "matmul", device: Device = CPU) -> Any:
    return plan(Selection((operation,), dtypes=DTYPES, precisions=("ieee",)), device)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with four cores, enough memory, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("suite.hardware.host.cores", lambda: 4)
    monkeypatch.setattr("suite.hardware.memory_bytes", lambda *_: 1 << 40)
    monkeypatch.setattr("suite.frameworks.base.torch_is_cpu_build", lambda: False)
    monkeypatch.setattr("suite.frameworks.jax.Jax.missing", lambda self, device: None)
    monkeypatch.setattr("cuda_ref.build.compiler.missing", lambda kind: None)


def ahead(pool: FakePool, operation: str = "matmul") -> list[str]:
    said: list[str] = []
    build_ahead(jobs(operation, pool.device), pool, Options(pool.device), said.append)  # type: ignore[arg-type]
    return said


def test_a_library_is_built_for_each_arithmetic_and_a_triton_kernel_for_each_case() -> None:
    pool: Any = FakePool(lambda request: None, H200)
    found = list(builds(jobs(device=H200), pool, Options(H200)))
    each = [(build.implementation.name, [case.dtype for case in build.cases]) for build in found]
    cuda = [dtypes for name, dtypes in each if name.startswith("cuda")]
    triton = [dtypes for name, dtypes in each if name == "triton"]
    assert {dtype for dtypes in cuda for dtype in dtypes} == set(DTYPES)
    assert all(len(set(dtypes)) == 1 for dtypes in cuda), "each dtype may need a library of its own"
    on_cpu: Any = FakePool(lambda request: None)
    together = [build for build in builds(jobs(), on_cpu, Options(CPU)) if build.implementation.framework == "cuda"]
    assert len(together) == len({build.implementation.name for build in together})
    assert len(triton) == sum(len(dtypes) for dtypes in triton) >= 2
    assert {build.implementation.framework for build in found} == {"cuda", "triton"}
    found = list(builds(jobs(device=H200), pool, Options(H200, telling=True)))
    assert {build.telling for build in found if build.implementation.framework == "cuda"} == {"too"}
    of_jax = [build for build in found if build.implementation.name == "jax"]
    assert [(build.cases[0].dtype, build.telling) for build in of_jax] == [(dtype, "only") for dtype in DTYPES]
    of_triton = [build.telling for build in found if build.implementation.name == "triton"]
    assert (of_triton.count("too"), len(of_triton)) == (len(DTYPES), len(triton))


def test_processes_share_the_builds_and_a_later_run_has_none() -> None:
    pool = FakePool(lambda request: BuildReply(covered=True))
    (said,) = ahead(pool)
    assert said == f"building {len(pool.asked)} kernels ahead, 4 at a time"
    assert len({request.implementation for request in pool.asked}) == len(pool.asked) > 4
    assert [worker.closed for worker in pool.workers] == [True] * 4
    again = FakePool(lambda request: BuildReply(covered=True))
    assert ahead(again) == []
    assert again.workers == []


def test_a_case_that_is_not_covered_is_followed_by_the_next() -> None:
    pool = FakePool(lambda request: BuildReply(request.case.dtype == "bfloat16"))
    ahead(pool)
    names = {request.implementation for request in pool.asked}
    assert len(pool.asked) == 2 * len(names)


def test_few_builds_are_left_to_their_rows() -> None:
    pool = FakePool(lambda request: BuildReply(covered=True))
    assert ahead(pool, "vector_add") == []
    assert pool.workers == []


def test_what_fails_ends_nothing() -> None:
    def answer(request: BuildRequest) -> Failed:
        if request.implementation == "cuda/tiled":
            raise WorkerDiedError("the worker was killed", "cuda/tiled")
        return Failed("BuildError: no", str(request.implementation))

    pool = FakePool(answer)
    ahead(pool)
    assert "cuda/tiled" in {request.implementation for request in pool.asked}
    assert all(worker.closed for worker in pool.workers)


def test_an_interruption_ends_the_processes() -> None:
    def answer(request: BuildRequest) -> BuildReply:
        return BuildReply(covered=True)

    class Interrupted(FakePool):
        def start(self) -> Worker:
            if len(self.workers) == 2:
                raise KeyboardInterrupt
            return super().start()

    pool = Interrupted(answer)
    with pytest.raises(KeyboardInterrupt):
        ahead(pool)
    assert [worker.closed for worker in pool.workers] == [True, True]


def test_builds_wait_for_memory_and_small_ones_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large build among small ones lowers the number of processes by its own operands only."""
    sizes = {build.bytes for build in builds(jobs(), FakePool(lambda request: None), Options(CPU))}  # type: ignore[arg-type]
    monkeypatch.setattr("suite.hardware.memory_bytes", lambda *_: max(sizes) + 3 * PROCESS_BYTES)
    held, most, lock = 0, 0, threading.Lock()

    def answer(request: BuildRequest) -> BuildReply:
        nonlocal held, most
        need = 2 * ops.operation(request.case).bytes(request.case)
        with lock:
            held += need
            most = max(most, held)
        time.sleep(0.002)
        with lock:
            held -= need
        return BuildReply(covered=True)

    pool = FakePool(answer)
    (said,) = ahead(pool)
    assert said.endswith("3 at a time")
    assert most <= max(sizes)
