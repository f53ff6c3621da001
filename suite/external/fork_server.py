"""A process that has imported torch and nothing else of a kernel: guests are forked from it, in milliseconds.

It runs no brought file, so that every guest begins alike. A guest's parent in it ends at once, which makes the guest a
child of the worker (`processes.adopt_orphans`).
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from suite.core import processes
from suite.hardware.device import Device
from suite.worker.child import KILL_S, Child, Start, spawn

PID = struct.Struct("!i")
OPTIONS = ("--channel", "--stacks", "--lifeline")
"""Of the descriptors that a guest gets, in the order in which they are sent; that of its output follows."""
START_S = 600.0
POLL_S = 0.002


class ForkedProcess:
    """A guest: the part of `subprocess.Popen` that is needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:  # no child of this process, where orphans cannot be adopted
                self._code = None if Path(f"/proc/{self.pid}").exists() else 0
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout if timeout is not None else KILL_S)
        while (code := self.poll()) is None:
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired("guest", KILL_S)
            time.sleep(POLL_S)
        return code


class Nursery(Child):
    """Starts the process: by `fork_here` as a copy of this one, which must have run no kernel yet; else as a new one,
    which needs some seconds until the first fork."""

    def __init__(self, device: Device, *, fork_here: bool = False) -> None:
        processes.adopt_orphans()
        self._control, theirs = socket.socketpair()
        start = _forked(device) if fork_here else spawn("suite.worker.guest", device, os.environ)
        super().__init__(start, {"--control": theirs.detach()})

    def fork(self, ends: Mapping[str, int], output: int) -> ForkedProcess:
        """A guest with the descriptors of OPTIONS. Raises `OSError` or `WorkerDiedError` if the process is gone."""
        socket.send_fds(self._control, [b"f"], [*(ends[name] for name in OPTIONS), output])
        self.wait_for(self._control.fileno(), START_S, time.monotonic() + START_S)
        answer = self._control.recv(PID.size, socket.MSG_WAITALL)
        if len(answer) < PID.size:
            raise self.died()
        return ForkedProcess(PID.unpack(answer)[0])

    def close(self, patience_s: float = KILL_S) -> None:
        super().close(patience_s)
        self._control.close()


def _forked(device: Device) -> Start:
    """Starts the process as a copy of this one, and waits until it holds no descriptor of this one."""

    def start(ends: Mapping[str, int], output: int) -> ForkedProcess:
        closed, ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            from suite.worker import guest

            guest.begin_nursery(device, ends, output, ready)
        os.close(ready)
        os.read(closed, 1)
        os.close(closed)
        return ForkedProcess(pid)

    return start
