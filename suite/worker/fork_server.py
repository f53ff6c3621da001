"""Workers are forked from a process that has imported torch (`forking.py`): the first one waits for that, the others
start at once.

A server belongs to one pool at a time. Afterwards it is kept for the next pool of this process, which may be that of
another run from Python: it must have been started as that pool would start one.
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
from pathlib import Path
from signal import SIGKILL

from suite.hardware.device import Device
from suite.worker.child import HASTY_KILL_S, KILL_S, Child, spawn
from suite.worker.forking import ENDED, EVENT, LENGTH, OPTIONS, REFUSED

START_S = 600.0
LATE = frozenset(
    (
        "CUDA_CACHE_PATH",
        "CXX",
        "JAX_COMPILATION_CACHE_DIR",
        "PYTEST_CURRENT_TEST",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "XDG_CACHE_HOME",
    )
)
"""Variables that nothing reads before a worker is forked: servers are shared by runs that differ in them."""
KEPT = 2
"""Servers that are kept: each has 0.3 GB, most of it files that others share."""
LIMITS = tuple(getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_"))


class ForkedWorker:
    """A worker: the part of `subprocess.Popen` that is needed."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.server, self.pid = server, pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self.server.code(self.pid, 0.0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        patience = KILL_S if timeout is None else timeout
        end = time.monotonic() + patience
        while self._code is None:
            self._code = self.server.code(self.pid, max(0.0, end - time.monotonic()))
            if self._code is None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("worker", patience)
        return self._code


class ForkServer(Child):
    """Starts the process, for workers on `device` with an environment like `environment`."""

    def __init__(self, device: Device, environment: Mapping[str, str]) -> None:
        self.key = _key(device, environment)
        self.owner = os.getpid()
        self._codes: dict[int, int] = {}
        self._control, theirs = socket.socketpair()
        self._gone = False
        self._reading = threading.Lock()
        """Held by whoever waits for an event: workers may be watched from several threads."""
        try:
            super().__init__(spawn("suite.worker.forking", device, environment), {"--control": theirs.detach()})
        except BaseException:
            self._control.close()
            raise

    def fork(self, environment: Mapping[str, str], ends: Mapping[str, int], output: int) -> ForkedWorker:
        """A worker with the descriptors of OPTIONS. Raises `OSError` or `WorkerDiedError`."""
        request = json.dumps({"environment": dict(environment), "folder": _working_directory()}).encode("ascii")
        try:
            with self._reading:
                socket.send_fds(self._control, [LENGTH.pack(len(request))], [*(ends[name] for name in OPTIONS), output])
                self._control.sendall(request)
                kind = ENDED  # of an earlier worker
                while kind == ENDED:
                    self.wait_for(self._control.fileno(), START_S, time.monotonic() + START_S)
                    kind, pid = self._event()
                self._codes.pop(pid, None)  # of an earlier process with that number
        except OSError:
            raise self.died() from None
        except BaseException:  # interrupted: what it answers now is unknown
            self._gone = True
            raise
        if self._gone:
            raise self.died()
        if kind == REFUSED:
            raise OSError(pid, os.strerror(pid))
        return ForkedWorker(self, pid)

    def code(self, pid: int, patience_s: float) -> int | None:
        """The exit status of a worker, if it ends within `patience_s`."""
        with self._reading:
            while pid not in self._codes and not self._gone:
                if not select.select([self._control], [], [], patience_s)[0]:
                    return None
                self._event()
                patience_s = 0.0
        if pid in self._codes:
            return self._codes[pid]
        return None if _lives(pid) else -SIGKILL  # what has killed the server, and its statuses with it

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
        """Whether workers of this process with that environment can be forked from it."""
        lives = self.owner == os.getpid() and not self._gone and self.process.poll() is None
        return lives and self.key == _key(device, environment)

    def close(self, patience_s: float = KILL_S) -> None:
        super().close(patience_s)
        self._control.close()


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def _key(device: Device, environment: Mapping[str, str]) -> object:
    """What a server must have been started with."""
    limits = tuple(map(resource.getrlimit, LIMITS))
    cores = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    variables = frozenset((name, value) for name, value in environment.items() if name not in LATE)
    return device, variables, limits, cores


_kept: list[ForkServer] = []


def take(device: Device, environment: Mapping[str, str]) -> ForkServer:
    """A server that was kept, or a new one. Raises `WorkerDiedError` where the system cannot start a process."""
    for server in _kept:
        if server.serves(device, environment):
            _kept.remove(server)
            server.forget_output()
            return server
    return ForkServer(device, environment)


def give_back(server: ForkServer) -> None:
    """Keep a server that its pool needs no more."""
    _kept.append(server)
    while len(_kept) > KEPT:
        _close(_kept.pop(0), KILL_S)


def close_kept() -> None:
    """End the servers that are kept."""
    while _kept:
        _close(_kept.pop(), HASTY_KILL_S)


def _close(server: ForkServer, patience_s: float) -> None:
    if server.owner == os.getpid():  # a fork of this process has a copy of the list
        server.close(patience_s)


atexit.register(close_kept)
