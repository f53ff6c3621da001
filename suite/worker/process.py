"""One worker process, as its parent sees it: started, asked, watched, and ended with all that it has started.

It lives in a session of its own, where a Ctrl-C in the terminal does not reach it. It ends with its parent, however
that ends: a shell in its process group waits for the end of a pipe, the lifeline, whose other end only the parent
holds. Should the system run out of memory, it is the first to go. What it prints goes into a pipe too, of which the
last lines are kept: no kernel can fill a disk with its output.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite import hardware
from suite.core.errors import WorkerError
from suite.core.paths import ROOT
from suite.core.text import one_line
from suite.hardware.device import Device
from suite.implementations.explain import place
from suite.worker import protocol

TICK_S = 0.1
"""How often memory is looked at."""
DUMP_S = 0.3
"""How long to wait for a worker to say where it hangs."""
KILL_S, HASTY_KILL_S = 10.0, 0.5
"""How long to wait for a killed process to be gone: a kernel that hangs in the driver may hold it for ever."""
MEMORY_SHARE = 0.9
"""Of the host memory that is free when a worker starts, the part that it may take."""
PAUSE_S = 0.05
KEPT_OUTPUT, PIPE_READS = 8000, 32


class WorkerDiedError(WorkerError):
    """The process ended without an answer. `last_started` is what it was at, None if it was the suite's own work;
    `from_outside` says that the process was killed by another one, or by itself."""

    def __init__(self, message: str, last_started: str | None, *, from_outside: bool = False) -> None:
        super().__init__(message)
        self.last_started = last_started
        self.from_outside = from_outside


class WorkerTimeoutError(WorkerDiedError):
    """No sign of life for the time allowed; the process was killed."""


class WorkerProcess:
    """`extra` is set in its environment; `memory_bytes` is the host memory it may take, most of what is free if None.

    Raises `WorkerDiedError` where the system does not let a process start.
    """

    def __init__(self, device: Device, extra: Mapping[str, str], memory_bytes: int | None = None) -> None:
        free = hardware.free_host_bytes()
        self.memory_bytes = memory_bytes or (None if free is None else int(MEMORY_SHARE * free))
        self.phase = protocol.STARTING
        self.started: str | None = None
        self.partial, self.lines, self.output = b"", list[bytes](), b""
        self.left_behind = False
        pipes: list[int] = []
        try:
            for _ in range(5):
                pipes += os.pipe()
            requests, self._requests, self._answers, answers, self._output, output, *rest = pipes
            self._stacks, stacks, lifeline, self._lifeline = rest
            command = [sys.executable, "-P", "-m", "suite.worker.server", "--device", json.dumps(asdict(device))]
            ends = {"--requests": requests, "--answers": answers, "--stacks": stacks, "--lifeline": lifeline}
            for name, end in ends.items():
                command += [name, str(end)]
            self.process = subprocess.Popen(
                command,
                pass_fds=tuple(ends.values()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(device, extra),
                start_new_session=True,
            )
        except OSError as error:
            for each in pipes:
                os.close(each)
            raise WorkerDiedError(f"no worker process could be started: {error.strerror}", None) from error
        for each in (*ends.values(), output):
            os.close(each)
        os.set_blocking(self._output, False)

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to `request`. Raises `WorkerDiedError`, which `close` must follow."""
        self.started = request.get("implementation")
        if self.phase != protocol.STARTING:
            self.phase = protocol.PREPARING
        self._drain_output()
        self.output = b""  # of what was asked before
        with contextlib.suppress(BrokenPipeError):  # it is dead, which reading tells
            os.write(self._requests, json.dumps(request).encode() + b"\n")
        while True:
            event = self._next(protocol.limit_s(self.phase, timeout_s))
            kind = event.pop("event", None)
            if kind == "done":
                return event
            if kind == "ready":
                self.phase = protocol.PREPARING
            else:
                self.started, self.phase = event.get("implementation"), str(event.get("phase", ""))

    def _next(self, limit_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        while not self.lines:
            left = deadline - time.monotonic()
            if left <= 0:
                where = self._where_it_hangs()
                self.kill()
                raise WorkerTimeoutError(self._ended(protocol.overdue(self.phase, limit_s) + where), self.started)
            dead = self.process.poll() is not None  # a child of its own may hold the pipes open
            ready, _, _ = select.select([self._answers, self._output], [], [], 0 if dead else min(left, TICK_S))
            if self._output in ready:
                self._read_output()
            if self._answers in ready:
                if not (data := os.read(self._answers, 65536)):
                    raise self._died()
                *whole, self.partial = (self.partial + data).split(b"\n")
                self.lines += whole
            elif dead:
                raise self._died()
            else:
                self._watch_memory()
        try:
            event = json.loads(self.lines.pop(0))
            if not isinstance(event, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError):
            raise WorkerDiedError("the worker answered what cannot be read; it was stopped", self.started) from None
        return event

    def _drain_output(self) -> None:
        """Read what is there, but not for ever: somebody may go on printing."""
        for _ in range(PIPE_READS):
            if select.select([self._output], [], [], 0)[0]:
                self._read_output()

    def _read_output(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._output, 65536)
            if data:
                self.output = (self.output + data)[-KEPT_OUTPUT:]
            else:
                time.sleep(0.01)  # everybody has closed it, so that it is always ready

    def _watch_memory(self) -> None:
        taken = _resident_bytes(self.process.pid)
        if self.memory_bytes is not None and taken > self.memory_bytes:
            self.kill()
            allowed = f"{self.memory_bytes / 2**30:,.1f} GiB"
            message = f"out of host memory: it took more than the {allowed} that a worker may have, and was stopped"
            raise WorkerDiedError(self._ended(message), self.started)

    def _where_it_hangs(self) -> str:
        """Asks the process for its Python stack, which it can tell even while C code does not return."""
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, signal.SIGUSR1)
        return place(self._stack(DUMP_S))

    def _stack(self, patience_s: float) -> str:
        """The stack that the process has dumped."""
        found = b""
        while select.select([self._stacks], [], [], min(patience_s, PAUSE_S) if found else patience_s)[0]:
            if not (data := os.read(self._stacks, 65536)):
                break
            found += data
        return found.decode(errors="replace")

    def _died(self) -> WorkerDiedError:
        """How the process ended, where it was, and the last line that it printed."""
        try:
            code = self.process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            return WorkerDiedError("the worker closed its pipe without an answer", self.started)
        self._drain_output()
        how = f"ended with exit status {code}"
        if code < 0:
            how = f"was killed by {_signal_name(-code)}{place(self._stack(0))}"
            how += " (from outside; often the system is out of memory)" if code == -signal.SIGKILL else ""
        lines = [line for line in map(one_line, self.output.decode(errors="replace").splitlines()) if line]
        message = f"the worker {how}" + (f": {lines[-1][:300]}" if lines else "")
        return WorkerDiedError(message, self.started, from_outside=code == -signal.SIGKILL)

    def _ended(self, message: str) -> str:
        return f"{message}; its process cannot be killed and was left behind" if self.left_behind else message

    def kill(self, patience_s: float = KILL_S) -> None:
        """End the process and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.left_behind = True

    def close(self, patience_s: float = KILL_S) -> None:
        self.kill(0.0 if self.left_behind else patience_s)
        for each in (self._requests, self._answers, self._output, self._stacks, self._lifeline):
            os.close(each)


def _environment(device: Device, extra: Mapping[str, str]) -> dict[str, str]:
    inherited = os.environ.get("PYTHONPATH")
    path = f"{ROOT}{os.pathsep}{inherited}" if inherited else str(ROOT)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **extra}
    if device.type == "cuda":
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        environment["CUDA_VISIBLE_DEVICES"] = _visible(device.index)
    return environment


def _visible(index: int) -> str:
    """The name under which CUDA shows the worker just device `index` of those visible here."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(index) if visible is None else visible.split(",")[index]


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"


def _resident_bytes(pid: int) -> int:
    """Memory that the process has touched; 0 where the system does not tell."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
