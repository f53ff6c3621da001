"""Worker processes: whatever an implementation does to its process becomes an answer, and the next is not touched."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from faulty import CRASHES, inject

from suite import hardware, ops
from suite.hardware.device import Device
from suite.implementations import explain
from suite.worker import protocol
from suite.worker.pool import Pool, WorkerDiedError, WorkerTimeoutError
from suite.worker.process import KEPT_OUTPUT

CPU = Device("cpu", name="CPU")
CASE = ops.get("vector_add").case((100,))


@pytest.fixture(scope="module")
def python_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return inject(tmp_path_factory.mktemp("faults"), CRASHES)


@pytest.fixture(scope="module")
def pool(python_path: str) -> Iterator[Pool]:
    with Pool(CPU, {"PYTHONPATH": python_path}, memory_bytes=1 << 30) as pool:
        yield pool


def ask(pool: Pool, fault: str, timeout_s: float = 60.0) -> dict[str, object]:
    request = {"do": "check", "case": CASE.to_json(), "implementation": f"torch/{fault}", "seed": 0}
    return pool.ask(request, timeout_s=timeout_s)


def pid_of(pool: Pool) -> int:
    assert pool._worker is not None
    return pool._worker.process.pid


def test_python_faults_are_answers_and_the_worker_is_reused(pool: Pool) -> None:
    assert ask(pool, "right")["status"] == "ok"
    first = pid_of(pool)
    assert ask(pool, "wrong")["status"] == "wrong"
    raised = ask(pool, "raises")
    assert raised["status"] == "error"
    assert raised["reason"] == "RuntimeError: no luck today (fault_raises.py:2)"
    assert ask(pool, "unsupported") == {"status": "unsupported", "reason": "only on Tuesdays"}
    assert ask(pool, "prints")["status"] == "wrong", "what a kernel prints is never taken for an answer"
    assert "NoneType" in str(ask(pool, "returns_nothing")["reason"])
    huge = str(ask(pool, "asks_for_200_gb")["reason"])
    assert re.search(r"tried to allocate 214748364800 bytes.*GiB of host memory are free", huge), huge
    assert ask(pool, "right")["status"] == "ok"
    assert pid_of(pool) == first


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("segfault", r"killed by SIGSEGV at fault_segfault\.py:2$"),
        ("kills_itself", r"killed by SIGKILL \(from outside; often the system is out of memory\)$"),
        ("exits", "exit status 3: last words"),
        ("quits", "exit status 0$"),
        ("forks", "exit status 5$"),
        ("allocates", r"out of host memory: it took more than the 1\.0 GiB that a worker may have"),
    ],
)
def test_a_process_that_dies_is_reported_and_replaced(pool: Pool, fault: str, message: str) -> None:
    begin = time.monotonic()
    with pytest.raises(WorkerDiedError, match=message) as caught:
        ask(pool, fault)
    assert time.monotonic() - begin < 30, "and not by its silence"
    assert caught.value.last_started == f"torch/{fault}"
    assert caught.value.from_outside == (fault == "kills_itself")
    assert ask(pool, "right")["status"] == "ok"


@pytest.mark.parametrize("fault", ["sleeps", "loops", "loops_in_c", "prints_forever"])
def test_a_process_that_hangs_is_stopped_with_its_line_and_replaced(pool: Pool, fault: str) -> None:
    ask(pool, "right")
    process = psutil.Process(pid_of(pool))
    with pytest.raises(WorkerTimeoutError, match=rf"within 1 s .*--timeout allows more at fault_{fault}\.py:2"):
        ask(pool, fault, timeout_s=1.0)
    assert not process.is_running()
    assert ask(pool, "right")["status"] == "ok"


def test_what_a_worker_prints_is_read_along_and_not_kept(pool: Pool) -> None:
    """More than a pipe holds does not stop it, and little is remembered."""
    assert ask(pool, "prints_a_lot")["status"] == "ok"
    assert pool._worker is not None
    assert len(pool._worker.output) == KEPT_OUTPUT


def test_starting_is_not_the_first_calls_time(pool: Pool) -> None:
    pool.discard()
    assert ask(pool, "right", timeout_s=1.0)["status"] == "ok", "a fresh process imports torch for longer than that"


def test_a_worker_ends_with_what_it_started(python_path: str) -> None:
    with Pool(CPU, {"PYTHONPATH": python_path}) as pool:
        ask(pool, "right")
        family = [psutil.Process(pid_of(pool)), *psutil.Process(pid_of(pool)).children(recursive=True)]
        assert len(family) >= 2, "a worker, and the guard that outlives a killed parent"
        (score,) = Path(f"/proc/{pid_of(pool)}/oom_score_adj").read_text(encoding="ascii").split()
        assert score == "1000", "the first to go when the system runs out of memory"
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_a_process_that_cannot_be_killed_is_left_behind(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a kernel that hangs in the driver. The run goes on with another worker."""
    ask(pool, "right")
    left = psutil.Process(pid_of(pool))
    with monkeypatch.context() as patch:
        patch.setattr("suite.worker.process.KILL_S", 0.2)
        patch.setattr(os, "killpg", lambda *_: None)
        patch.setattr("suite.worker.process.WorkerProcess.kill.__defaults__", (0.2,))
        with pytest.raises(WorkerTimeoutError, match="its process cannot be killed and was left behind"):
            ask(pool, "sleeps", timeout_s=1.0)
    assert ask(pool, "right")["status"] == "ok"
    assert left.is_running()
    for process in [*left.children(recursive=True), left]:
        process.kill()


def test_a_system_that_starts_no_process_is_an_error_of_the_row(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.discard()
    descriptors = len(os.listdir("/proc/self/fd"))

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr("suite.worker.process.subprocess.Popen", refuse)
        with pytest.raises(WorkerDiedError, match="no worker process could be started: Resource temporarily"):
            ask(pool, "right")
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert ask(pool, "right")["status"] == "ok"


def test_an_answer_that_cannot_be_read_is_the_end_of_a_worker(pool: Pool) -> None:
    ask(pool, "right")
    assert pool._worker is not None
    pool._worker.lines.append(b"\xff not json")
    with pytest.raises(WorkerDiedError, match="answered what cannot be read"):
        ask(pool, "right")
    assert ask(pool, "right")["status"] == "ok"


def test_each_phase_has_its_limit() -> None:
    assert protocol.limit_s(protocol.FIRST_CALL, 120.0) == 120.0
    assert protocol.limit_s("second call", 120.0) == protocol.limit_s(protocol.TIMED_CALL, 120.0) == 30.0
    assert protocol.limit_s("second call", 5.0) == 5.0
    assert all(protocol.limit_s(phase, 1.0) == 600.0 for phase in protocol.OWN_WORK)
    assert "a second call, after calls that had ended, did not end within 30 s" in protocol.overdue("second call", 30.0)


def test_errors_are_told_so_that_one_can_act_on_them() -> None:
    class OutOfMemoryError(RuntimeError): ...

    error = OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 200.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 138.00 "
        "GiB is free. Including non-PyTorch memory, this process has 1 GiB. If reserved but unallocated memory is ..."
    )
    assert explain.reason(error, "cuda") == (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 GiB. "
        "GPU 0 has a total capacity of 139.80 GiB of which 138.00 GiB is free."
    )
    illegal = RuntimeError(
        "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported\n..."
    )
    assert explain.reason(illegal, "cuda") == (
        "RuntimeError: CUDA error: an illegal memory access was encountered; "
        "this ruins the process's CUDA context, so that its worker was replaced"
    )
    assert "GiB of host memory are free" in explain.reason(MemoryError(), "cuda")
    assert explain.reason(ValueError("x" * 9999), "cpu") == f"ValueError: {'x' * 488}..."


def test_the_memory_that_is_free_heeds_the_limits_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("0::/box/inner\n", encoding="ascii")
    inner = tmp_path / "groups" / "box" / "inner"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n", encoding="ascii")
    (inner.parent / "memory.max").write_text("1000000\n", encoding="ascii")
    (inner.parent / "memory.current").write_text("600000\n", encoding="ascii")
    (inner.parent / "memory.stat").write_text("anon 5\ninactive_file 100000\n", encoding="ascii")
    assert hardware.free_host_bytes(tmp_path / "self", tmp_path / "groups") == 500000
    assert (hardware.free_host_bytes(tmp_path / "none", tmp_path / "none") or 0) > 500000
