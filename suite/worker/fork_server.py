"""The parent's side of the fork server, the process from which workers are forked. It imports torch once, for all.

A server belongs to one pool at a time. Then it is kept for a later pool of this process, such as that of another run
from Python, if that pool would start its server in the same way.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import select
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from signal import SIGKILL

from suite.hardware.device import Device
from suite.processes.child import KILL_S, SHORT_KILL_S, Child, spawn
from suite.processes.forked import forked
from suite.worker import fork_server_main
from suite.worker.fork_server_main import ENDED, EVENT, LENGTH, OPTIONS, REFUSED

START_S = 600.0
LATE_VARIABLES = frozenset(
    (
        "CUDA_CACHE_PATH",
        "CXX",
        "JAX_COMPILATION_CACHE_DIR",
        "KERNEL_SUITE_CLUSTER",
        "PYTEST_CURRENT_TEST",
        "TF_CPP_MIN_LOG_LEVEL",  # JAX sets this one and TPU_SKIP_MDS_QUERY when it is imported
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "TPU_SKIP_MDS_QUERY",
        "TRITON_CACHE_DIR",
        "XDG_CACHE_HOME",
    )
)
"""Variables that nothing reads before a worker is forked: runs that differ in them share a server."""
MAX_KEPT = 2
"""Servers that are kept. Each has 0.3 GB, most of it pages of files that it shares with other processes."""
LIMITS = tuple(getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_"))


class ForkedWorker:
    """A worker, which is a child of the fork server: the part of `subprocess.Popen` that `Child` uses."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.server, self.pid = server, pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self.server.code(self.pid, 0.0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        limit_s = KILL_S if timeout is None else timeout
        end = time.monotonic() + limit_s
        while self._code is None:
            self._code = self.server.code(self.pid, max(0.0, end - time.monotonic()))
            if self._code is None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("worker", limit_s)
        return self._code


class ForkServer(Child):
    """A process that forks workers on `device`. Their environments differ from `environment` only in LATE_VARIABLES.

    fork_here: it is a fork of this process, which has one thread and this environment, and has run no kernel yet.
    """

    def __init__(self, device: Device, environment: Mapping[str, str], *, fork_here: bool = False) -> None:
        self.key = _key(device, environment)
        self.owner = os.getpid()
        self._codes: dict[int, int] = {}
        self._control, theirs = socket.socketpair()
        self._gone = False
        self._reading = threading.Lock()
        """Held while a thread waits for an event: several threads may watch workers."""
        try:
            begin = partial(fork_server_main.begin, device)
            start = forked(begin) if fork_here else spawn("suite.worker.fork_server_main", device, environment)
            super().__init__(start, {"--control": theirs.detach()})
        except BaseException:
            self._control.close()
            raise

    def fork(self, environment: Mapping[str, str], times: bool, ends: Mapping[str, int], output: int) -> ForkedWorker:
        """A worker with the descriptors of OPTIONS. Raises `OSError` or `WorkerDiedError`.

        times: it is likely to time calls, and shares the memory that this takes on a CPU.
        """
        wanted = {"environment": dict(environment), "folder": _working_directory(), "times": times}
        request = json.dumps(wanted).encode("ascii")
        try:
            with self._reading:
                socket.send_fds(self._control, [LENGTH.pack(len(request))], [*(ends[name] for name in OPTIONS), output])
                self._control.sendall(request)
                kind = ENDED  # events of earlier workers are skipped
                while kind == ENDED:
                    self.wait_for(self._control.fileno(), START_S, self.clock() + START_S)
                    kind, pid = self._event()
                self._codes.pop(pid, None)  # the status of an earlier process with this id
        except OSError:
            raise self.death_error() from None
        except BaseException:  # interrupted: its next answer is unknown
            self._gone = True
            raise
        if self._gone:
            raise self.death_error()
        if kind == REFUSED:
            raise OSError(pid, os.strerror(pid))
        return ForkedWorker(self, pid)

    def code(self, pid: int, wait_s: float) -> int | None:
        """The exit status of a worker that ends within `wait_s`; else None."""
        with self._reading:
            while pid not in self._codes and not self._gone:
                if not select.select([self._control], [], [], wait_s)[0]:
                    return None
                self._event()
                wait_s = 0.0
        if pid in self._codes:
            return self._codes[pid]
        return None if _is_alive(pid) else -SIGKILL  # the server is dead, and the status with it

    def _event(self) -> tuple[bytes, int]:
        try:
            data = self._control.recv(EVENT.size, socket.MSG_WAITALL)
        except OSError:
            data = b""
        if len(data) < EVENT.size:
            self._gone = True
            return b"", 0
        kind, pid, code = EVENT.unpack(data)
        if kind == ENDED:
            self._codes[pid] = code
        return kind, pid

    def serves(self, device: Device, environment: Mapping[str, str]) -> bool:
        """True if workers of this process with `environment` can be forked from this server."""
        lives = self.owner == os.getpid() and not self._gone and self.alive
        return lives and self.key == _key(device, environment)

    def close(self, wait_s: float = KILL_S) -> None:
        super().close(wait_s)
        self._control.close()


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def _key(device: Device, environment: Mapping[str, str]) -> object:
    """The settings that a server and its workers must share."""
    limits = tuple(map(resource.getrlimit, LIMITS))
    cores = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    variables = frozenset((name, value) for name, value in environment.items() if name not in LATE_VARIABLES)
    return device, variables, limits, cores


_kept: list[ForkServer] = []


def acquire(device: Device, environment: Mapping[str, str]) -> ForkServer:
    """A kept server, or a new one. Raises `WorkerDiedError` if the system cannot start a process."""
    for server in _kept:
        if server.serves(device, environment):
            _kept.remove(server)
            server.discard_output()
            return server
    return ForkServer(device, environment)


def begin(device: Device, environment: Mapping[str, str]) -> None:
    """Keep a new server, which gets ready while this process goes on."""
    release(ForkServer(device, environment))


def begin_here(device: Device, environment: Mapping[str, str]) -> None:
    """Keep a server that is a fork of this process: it has the modules that this process has imported.

    This process must have one thread, `environment`, and have run no kernel yet.
    """
    release(ForkServer(device, environment, fork_here=True))


def release(server: ForkServer) -> None:
    """Keep a server that its pool no longer needs."""
    _kept.append(server)
    while len(_kept) > MAX_KEPT:
        _close(_kept.pop(0), KILL_S)


def close_kept() -> None:
    """End the kept servers."""
    while _kept:
        _close(_kept.pop(), SHORT_KILL_S)


def _close(server: ForkServer, wait_s: float) -> None:
    if server.owner == os.getpid():  # a fork of this process has a copy of the list
        server.close(wait_s)


atexit.register(close_kept)
