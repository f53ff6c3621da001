"""Worker processes: whatever an implementation does to its process becomes a reply, or an error of the one request."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from commands import SECONDS_TO_END
from faulty import CRASHES, MEMORY_BYTES, OUT_OF_MEMORY, inject
from tries import passes_once

from suite import ops
from suite.hardware.device import Device
from suite.processes.child import KEPT_OUTPUT
from suite.worker.pool import Pool, WorkerDiedError, WorkerTimeoutError
from suite.worker.process import environment
from suite.worker.protocol import (
    CheckReply,
    CheckRequest,
    Done,
    Failed,
    Ready,
    TimeReply,
    TimeRequest,
    encode,
    encode_numbered,
)

CPU = Device("cpu", name="CPU")
CASE = ops.get("vector_add").case((100,))


@pytest.fixture(scope="module")
def python_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return inject(tmp_path_factory.mktemp("faults"), CRASHES)


@pytest.fixture(scope="module")
def pool(python_path: str) -> Iterator[Pool]:
    with Pool(CPU, {"PYTHONPATH": python_path}, memory_bytes=MEMORY_BYTES) as pool:
        yield pool


def ask(pool: Pool, fault: str, timeout_s: float = 60.0) -> CheckReply | Failed:
    return pool.ask(CheckRequest(CASE, f"torch/{fault}", 0), timeout_s=timeout_s)


def status(pool: Pool, fault: str, timeout_s: float = 60.0) -> str:
    reply = ask(pool, fault, timeout_s)
    return reply.status if isinstance(reply, CheckReply) else "error"


def pid_of(pool: Pool) -> int:
    assert pool._worker is not None
    return pool._worker.process.pid


def test_exceptions_are_replies_and_the_worker_is_reused(pool: Pool) -> None:
    assert status(pool, "right") == "ok"
    first = pid_of(pool)
    assert status(pool, "wrong") == "wrong"
    assert ask(pool, "raises") == Failed("RuntimeError: no luck today (fault_raises.py:2)", "torch/raises")
    assert ask(pool, "unsupported") == CheckReply("unsupported", "only on Tuesdays")
    assert status(pool, "prints") == "wrong", "what a kernel prints is never taken for an event"
    assert "NoneType" in ask(pool, "returns_nothing").reason
    huge = ask(pool, "asks_for_200_gb").reason
    assert re.search(r"tried to allocate 214748364800 bytes.*GiB of host memory are free", huge), huge
    assert status(pool, "right") == "ok"
    assert pid_of(pool) == first


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("segfault", r"killed by SIGSEGV at fault_segfault\.py:2$"),
        ("kills_itself", r"killed by SIGKILL \(from outside; often the system is out of memory\)$"),
        ("is_terminated", r"killed by SIGTERM.* \(from outside\)$"),
        ("is_interrupted", r"killed by SIGINT.* \(from outside\)$"),
        ("exits", "exit status 3: last words"),
        ("quits", "exit status 0$"),
        ("forks", "exit status 5$"),
        ("allocates", OUT_OF_MEMORY),
    ],
)
def test_a_process_that_dies_is_reported_and_replaced(pool: Pool, fault: str, message: str) -> None:
    with pytest.raises(WorkerDiedError, match=message) as caught:  # by its death, not by a timeout
        ask(pool, fault)
    assert caught.value.last_started == f"torch/{fault}"
    assert caught.value.from_outside == (fault in ("kills_itself", "is_terminated", "is_interrupted"))
    assert status(pool, "right") == "ok"


@pytest.mark.parametrize(
    "fault",
    ["loops_in_c", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("sleeps", "loops", "prints_forever"))],
)
def test_a_process_that_hangs_is_stopped_with_its_line_and_replaced(pool: Pool, fault: str) -> None:
    def stopped(limit_s: float) -> None:
        ask(pool, "right")
        process = psutil.Process(pid_of(pool))
        with pytest.raises(WorkerTimeoutError) as caught:
            ask(pool, fault, timeout_s=limit_s)
        assert not process.is_running()
        assert status(pool, "right") == "ok"
        where = rf"within {limit_s:g} s .*--timeout allows more at fault_{fault}\.py:2"
        assert re.search(where, str(caught.value)), caught.value

    passes_once(stopped, (1.0, 20.0))


def test_output_is_read_while_the_worker_runs_and_its_end_is_kept(pool: Pool) -> None:
    """The pipe never fills up, which would block the worker."""
    assert status(pool, "prints_a_lot") == "ok"
    assert pool._worker is not None
    assert len(pool._worker.output) == KEPT_OUTPUT


def test_the_start_of_a_worker_does_not_count_as_a_first_call(tmp_path: Path) -> None:
    """It takes longer than a first call may, which is 50 times as long as this one takes on an idle machine."""
    path = inject(tmp_path, {"right": CRASHES["right"]})
    with (tmp_path / "sitecustomize.py").open("a") as starts:
        starts.write("import time; time.sleep(3)\n")
    with Pool(CPU, {"PYTHONPATH": path}) as pool:
        assert status(pool, "right", timeout_s=2.0) == "ok"


def test_a_worker_ends_with_what_it_started(pool: Pool) -> None:
    ask(pool, "right")
    family = [psutil.Process(pid_of(pool)), *psutil.Process(pid_of(pool)).children(recursive=True)]
    assert len(family) >= 2, "a worker, and the shell that outlives a killed parent"
    (score,) = Path(f"/proc/{pid_of(pool)}/oom_score_adj").read_text(encoding="ascii").split()
    assert score == "1000", "the first to go when the system runs out of memory"
    pool.discard()
    assert psutil.wait_procs(family, timeout=SECONDS_TO_END)[1] == []


def test_a_process_that_cannot_be_killed_is_left_behind(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like one that hangs in a driver. The run goes on with another worker."""
    ask(pool, "right")
    left = psutil.Process(pid_of(pool))
    with monkeypatch.context() as patch:
        patch.setattr("suite.processes.child.KILL_S", 0.2)
        patch.setattr(os, "killpg", lambda *_: None)
        patch.setattr("suite.processes.child.Child.kill.__defaults__", (0.2,))
        with pytest.raises(WorkerTimeoutError, match="its process cannot be killed and was left behind"):
            ask(pool, "sleeps", timeout_s=1.0)
    assert status(pool, "right") == "ok"
    assert left.is_running()
    for process in [*left.children(recursive=True), left]:
        process.kill()


def test_a_system_that_cannot_start_a_process_is_an_error_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left open, and the next request tries again."""
    tries = []

    def refuse(*_: object, **__: object) -> None:
        tries.append("started")
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("suite.processes.child.subprocess.Popen", refuse)
    with Pool(CPU, {"OF_THIS_TEST": "so that no kept server is used"}) as pool:
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(2):
            with pytest.raises(WorkerDiedError, match="no worker process could be started: Resource temporarily"):
                ask(pool, "right")
        assert len(os.listdir("/proc/self/fd")) == descriptors
    assert len(tries) == 2


LATER = 1 << 40
"""The number of a request that was never made."""
UNREADABLE = {
    "no JSON": b"\xff not json",
    "no number": encode(Done(CheckReply("ok", ""))),
    "a number that is none": b"one " + encode(Done(CheckReply("ok", ""))),
    "an answer before the question": encode_numbered(Done(CheckReply("ok", "")), LATER),
    "a request": encode_numbered(CheckRequest(CASE, "torch", 0), LATER),
    "the reply to another request": encode_numbered(Done(TimeReply({})), LATER),
    "a field too many": encode_numbered(Ready(), LATER).replace(b"}", b', "more": 1}'),
}


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_event_that_cannot_be_read_ends_the_worker(line: bytes, pool: Pool) -> None:
    ask(pool, "right")
    assert pool._worker is not None
    pool._worker.lines.append(line)
    with pytest.raises(WorkerDiedError, match="answer cannot be read"):
        ask(pool, "right")
    assert status(pool, "right") == "ok"


def test_a_reply_without_the_times_asked_for_ends_the_worker(pool: Pool) -> None:
    ask(pool, "right")
    assert pool._worker is not None
    pool._worker.lines.append(encode_numbered(Done(TimeReply({})), pool._worker.number + 1).rstrip())
    with pytest.raises(WorkerDiedError, match="answer cannot be read"):
        pool.ask(TimeRequest(CASE, ("torch",), 0, "cold", False), timeout_s=60.0)
    assert status(pool, "right") == "ok"


@pytest.mark.parametrize("fault", ["answers_twice", "answers_twice_in_c"])
def test_a_fork_that_answers_too_shifts_no_later_answer(fault: str, pool: Pool) -> None:
    assert status(pool, fault) == "ok"
    for expected in ("wrong", "right", "wrong"):
        assert status(pool, expected) == {"right": "ok"}.get(expected, expected)


def test_a_late_answer_to_an_earlier_request_is_dropped(pool: Pool) -> None:
    ask(pool, "right")
    assert pool._worker is not None
    worker = pool._worker.process.pid
    pool._worker.lines.append(encode_numbered(Done(CheckReply("ok", "")), pool._worker.number).rstrip())
    assert status(pool, "wrong") == "wrong"
    assert pid_of(pool) == worker


def test_a_child_of_a_kernel_does_not_hold_the_pipes(pool: Pool) -> None:
    pool.discard()
    assert status(pool, "leaves_a_child") == "ok"
    worker = psutil.Process(pid_of(pool))
    assert pool._worker is not None
    pipes = {os.readlink(f"/proc/self/fd/{end}") for end in (pool._worker._requests, pool._worker._events)}
    assert len(pipes) == 2
    children = worker.children(recursive=True)
    assert len(children) >= 3, (
        "the shell that outlives a killed parent, the fork server of external processes, and the kernel's child"
    )
    for child in children:
        held = {os.readlink(path) for path in Path(f"/proc/{child.pid}/fd").iterdir()}
        assert not pipes & held, child.cmdline()


def test_a_stopped_worker_is_waited_for_no_longer_than_a_first_call(pool: Pool) -> None:
    """Whatever it was doing: the suite's own work has a limit of 600 s."""
    ask(pool, "right")
    os.kill(pid_of(pool), signal.SIGSTOP)
    begin = time.monotonic()
    with pytest.raises(
        WorkerTimeoutError, match=r"stopped by a signal from outside for 1 s, and was killed$"
    ) as caught:
        ask(pool, "right", timeout_s=1.0)
    assert time.monotonic() - begin < 120
    assert caught.value.from_outside
    assert status(pool, "right") == "ok"


def test_native_implementations_on_a_cpu_leave_a_core_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.hardware.host.cores", lambda: 8)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PJRT_NPROC"):
        monkeypatch.delenv(name, raising=False)
    found = environment(CPU, {"PJRT_NPROC": "2"})
    assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"], found["PJRT_NPROC"]) == ("7", "7", "2")
    assert "OMP_NUM_THREADS" not in environment(Device("cuda", 0, "a GPU", (9, 0)), {})
