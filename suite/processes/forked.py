"""Forks of this process, in the form that `Child` needs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from suite.processes.child import Start

MAX_WAIT_S = 10.0
POLL_S = 0.002


class ForkedProcess:
    """A child of this process by its id: the part of `subprocess.Popen` that `Child` uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit status; None while the process runs."""
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:  # not a child of this process: the system does not let it adopt orphans
                self._code = None if Path(f"/proc/{self.pid}").exists() else 0
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises `subprocess.TimeoutExpired` after `timeout` seconds, by default `MAX_WAIT_S`."""
        limit_s = MAX_WAIT_S if timeout is None else timeout
        end = time.monotonic() + limit_s
        while (code := self.poll()) is None:
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", limit_s)
            time.sleep(POLL_S)
        return code


def forked(begin: Callable[[Mapping[str, int], int, int], NoReturn]) -> Start:
    """Starts a fork of this process, which must have one thread and have run no kernel yet.

    begin: is called in the fork with its descriptors by option name, the one that it prints to, and one that it closes
    once it holds no other descriptor of this process.
    """

    def start(ends: Mapping[str, int], output: int) -> ForkedProcess:
        closed, ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            begin(ends, output, ready)
        os.close(ready)
        os.read(closed, 1)
        os.close(closed)
        return ForkedProcess(pid)

    return start
