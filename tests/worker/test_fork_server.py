"""The process from which workers are forked: whom it serves, what a worker gets from it, and that nobody reaches it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from commands import SECONDS_TO_END
from external_files import RIGHT, external, write
from faulty import ROOT, inject

from suite import ops
from suite.hardware.device import Device
from suite.hardware.host import CACHE_VARIABLE
from suite.processes import tree
from suite.processes.child import SHORT_KILL_S, WorkerDiedError
from suite.worker import fork_server
from suite.worker.fork_server import ForkServer
from suite.worker.pool import Pool
from suite.worker.process import WorkerProcess
from suite.worker.protocol import CheckReply, CheckRequest

CPU = Device("cpu", name="CPU")
CASE = ops.get("vector_add").case((100,))


@pytest.fixture(scope="module")
def kept() -> Iterator[None]:
    """No servers of other modules; those of this one end with it. Its tests share them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server, "_kept", [])
        yield
        fork_server.close_kept()


def checked(pool: Pool, name: str = "torch") -> str:
    reply = pool.ask(CheckRequest(CASE, name, 0), timeout_s=60.0)
    assert isinstance(reply, CheckReply), reply
    return reply.status


def server_of(pool: Pool) -> ForkServer:
    assert pool._server is not None
    return pool._server


def worker_of(pool: Pool) -> WorkerProcess:
    assert pool._worker is not None
    return pool._worker


def test_a_server_is_kept_for_pools_that_would_start_the_same(
    kept: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches, the working directory and the environment are those of the worker's start, not of the server's."""
    where = tmp_path / "where"
    said = "os.getcwd() + ' ' + os.environ['XDG_CACHE_HOME']"
    body = f"import os\n    open({str(where)!r}, 'w').write({said})\n    return a + b"
    faults = {"PYTHONPATH": inject(tmp_path / "faults", {"tells": body})}
    with Pool(CPU, faults) as pool:
        checked(pool)
        first = server_of(pool)
        assert len(psutil.Process(first.process.pid).threads()) == 1, "a fork of threads may hang"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("TF_CPP_MIN_LOG_LEVEL", "TPU_SKIP_MDS_QUERY", "TORCH_EXTENSIONS_DIR"):  # as after a check of JAX, CUDA
        monkeypatch.setenv(name, "0" if os.environ.get(name) == "1" else "1")
    with Pool(CPU, faults) as pool:
        assert checked(pool, "torch/tells") == "ok"
        assert server_of(pool) is first
        assert where.read_text(encoding="utf-8") == f"{tmp_path} {tmp_path / 'cache'}"
        assert not first.serves(CPU, {"OMP_NUM_THREADS": "77"}), "torch has read that"
        pool.renew()
    assert not psutil.pid_exists(first.process.pid)


@pytest.mark.thorough
def test_only_pools_that_time_calls_take_the_memory_that_evicts_the_cache(
    kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(200 << 20))
    with Pool(CPU, times=False) as pool:
        assert checked(pool) == "ok"
        server = server_of(pool)
        before = tree.resident_bytes(server.process.pid)
    with Pool(CPU) as pool:
        assert checked(pool) == "ok"
        assert server_of(pool) is server
        assert tree.resident_bytes(server.process.pid) > before + (200 << 20)


FORKED_HERE = """
import psutil
from suite import ops
from suite.hardware.device import resolve
from suite.worker import fork_server
from suite.worker.pool import Pool
from suite.worker.process import environment
from suite.worker.protocol import CheckRequest

device, case = resolve("cpu"), ops.get("vector_add").case((100,))  # imports torch, once for both
fork_server.begin_here(device, environment(device, {}))
with Pool(device) as pool:
    reply = pool.ask(CheckRequest(case, "torch", 0), timeout_s=60.0)
    server = psutil.Process(pool._server.pid)
    print(reply.status, server.cmdline() == psutil.Process().cmdline(), server.num_threads())
"""


def test_a_process_of_one_thread_forks_the_server_from_itself() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED_HERE], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["ok", "True", "1"], done.stderr


def test_a_kernel_and_a_brought_file_hold_no_descriptor_of_the_server(kept: None, tmp_path: Path) -> None:
    who = tmp_path / "who"
    text = RIGHT.replace("return", f"import os; open({str(who)!r}, 'w').write(str(os.getpid())); return")
    with Pool(CPU) as pool:
        reply = pool.ask(CheckRequest(CASE, external(write(tmp_path / "looks.py", text)).reference, 0), timeout_s=60.0)
        assert isinstance(reply, CheckReply)
        assert reply.status == "ok"
        ends = {os.readlink(f"/proc/self/fd/{server_of(pool)._control.fileno()}")}
        ends |= held(server_of(pool).process.pid)
        assert len(ends) >= 3
        for pid in (int(who.read_text(encoding="utf-8")), worker_of(pool).process.pid):
            assert not ends & held(pid)


def held(pid: int) -> set[str]:
    """The sockets and pipes that a process holds beside its standard streams."""
    found = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if int(path.name) > 2}
    return {each for each in found if re.match("socket|pipe", each)}


@pytest.mark.thorough
def test_workers_are_started_while_others_are_watched(kept: None) -> None:
    """Whoever watches a worker reads how workers end, and must not take the answer that another one has started."""
    with Pool(CPU) as pool:
        workers, watching = [pool.start()], True

        def watch() -> None:
            while watching:
                assert workers[0].process.poll() is None

        threads = [threading.Thread(target=watch, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            workers += [pool.start() for _ in range(8)]
            workers[-1].close(SHORT_KILL_S)
            assert workers.pop().process.poll() == -signal.SIGKILL
        finally:
            watching = False
            for thread in threads:
                thread.join()
            for worker in workers:
                worker.close(SHORT_KILL_S)


def test_a_server_that_was_killed_costs_one_request(kept: None) -> None:
    with Pool(CPU) as pool:
        checked(pool)
        server = psutil.Process(server_of(pool).process.pid)
        server.kill()
        assert checked(pool) == "ok", "its workers live on"
        worker_of(pool).close(SHORT_KILL_S)
        pool._worker = None
        server.wait(SECONDS_TO_END)
        assert checked(pool) == "ok", "by another server"


def test_a_system_that_cannot_fork_is_an_error_of_the_request(kept: None) -> None:
    with Pool(CPU) as pool:
        checked(pool)
        server = server_of(pool)
        worker_of(pool).close(SHORT_KILL_S)
        pool._worker = None
        server._event = lambda: (fork_server.REFUSED, 11)  # type: ignore[method-assign]
        with pytest.raises(WorkerDiedError, match="no worker process could be started: Resource temporarily"):
            checked(pool)
        pool.renew()  # the server has forked, and its answer was not read
