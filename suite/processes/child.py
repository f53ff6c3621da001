"""The parent's side of a process that runs kernels: start, watch, wait for messages, end with all that it started.

- The process has its own session, so Ctrl-C in the terminal does not reach it.
- It ends with its parent, even a killed one: a shell in its process group waits for the end of a pipe, the lifeline,
  and then kills the group. Only the parent holds the pipe's other end.
- It is the first process that the kernel kills when the system runs out of memory (`oom_score_adj`).
- Its stdout and stderr go to a pipe. The parent keeps only the last bytes, so that a kernel cannot fill a disk.
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
from collections.abc import Callable, Mapping
from typing import Protocol

from suite.core.errors import WorkerError
from suite.core.package import qualified, search_path
from suite.core.phases import Phase, Started
from suite.core.text import one_line
from suite.frameworks import _caches
from suite.hardware.device import Device
from suite.implementations.failure import place_in_stack
from suite.processes import limits, tree
from suite.processes.codec import to_json

TICK_S = 0.1
"""Period of the memory checks."""
DUMP_S = 3.0
"""Time allowed for a process that hangs to dump its Python stack. An idle machine takes milliseconds."""
KILL_S, SHORT_KILL_S = 10.0, 0.5
"""Time allowed for a killed process to end; one that hangs in a driver may never end."""
OUTSIDE = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
"""Signals from another process, or from the system when memory is exhausted; no fault of a kernel causes them."""
PAUSE_S = 0.3
"""A stack dump is complete when nothing has followed for this long."""
KEPT_OUTPUT, PIPE_READS = 8000, 32
"""Bytes of output that are kept, and most reads before a request: a background thread may print without end."""


class WorkerDiedError(WorkerError):
    """The process ended without a reply.

    `last_started` names the implementation that was running; None during the suite's own work. `from_outside` is true
    for the signals of `OUTSIDE` and for SIGSTOP.
    """

    def __init__(self, message: str, last_started: str | None, *, from_outside: bool = False) -> None:
        super().__init__(message)
        self.last_started = last_started
        self.from_outside = from_outside


class WorkerTimeoutError(WorkerDiedError):
    """The process sent nothing for longer than the limit of its phase; it was killed."""


class Process(Protocol):
    """The part of `subprocess.Popen` that `Child` uses."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


Start = Callable[[Mapping[str, int], int], Process]
"""Starts a process from its descriptors by option name, and the descriptor that it prints to."""


def environment_with_suite(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` plus settings with which Python finds the suite and prints without a buffer."""
    return {**environment, "PYTHONUNBUFFERED": "1", "PYTHONPATH": search_path(environment.get("PYTHONPATH"))}


def spawn(module: str, device: Device, environment: Mapping[str, str]) -> Start:
    """Starts `python -m MODULE --device DEVICE --stacks N ...`."""

    def start(ends: Mapping[str, int], output: int) -> Process:
        command = [sys.executable, "-P", "-m", qualified(module), "--device", json.dumps(to_json(device))]
        for name, end in ends.items():
            command += [name, str(end)]
        return subprocess.Popen(
            command,
            pass_fds=tuple(ends.values()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment_with_suite(environment),
            start_new_session=True,
        )

    return start


class Child:
    """A process that `start` starts with the descriptors of `passed`, one for its stacks and one for its lifeline.

    `memory_bytes` limits its host memory; None sets no limit. The constructor closes the descriptors of `passed` in
    this process, also when it fails. Raises `WorkerDiedError` if the system cannot start a process.
    """

    def __init__(self, start: Start, passed: Mapping[str, int], memory_bytes: int | None = None) -> None:
        self.memory_bytes = memory_bytes
        self.current = Started(None, Phase.STARTING)
        self.output = b""
        self.left_behind = False
        self.max_stop_s = limits.FIRST_CALL_S
        """Time for which a signal may stop the process before it is killed."""
        self.clock = limits.OwnTime()
        pipes: list[int] = []
        try:
            for _ in range(3):
                pipes += os.pipe()
            self._output, output, self._stacks, stacks, lifeline, self._lifeline = pipes
            ends = {**passed, "--stacks": stacks, "--lifeline": lifeline}
            self.process = start(ends, output)
        except OSError as error:
            for each in (*pipes, *passed.values()):
                os.close(each)
            raise WorkerDiedError(f"no worker process could be started: {error.strerror}", None) from error
        for each in (*ends.values(), output):
            os.close(each)
        os.set_blocking(self._output, False)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_for(self, descriptor: int, limit_s: float, deadline: float) -> None:
        """Return when `descriptor`, which the process writes to, can be read.

        Raises `WorkerDiedError` if the process ends, and at `deadline`, a time of `clock`, which is `limit_s` seconds
        after its last message.
        """
        stopped_at: float | None = None
        while True:
            left = max(0.0, deadline - self.clock())
            dead = self.process.poll() is not None  # a child of the process may still hold the pipes open
            ready, _, _ = select.select([descriptor, self._output], [], [], 0 if dead else min(left, TICK_S))
            if self._output in ready:
                self._read_output()
            if descriptor in ready:
                return
            if dead:
                raise self.death_error()
            if not left:
                reason = limits.overdue(self.current.phase, limit_s, self.current.config) + self._hang_location()
                self.kill()
                raise WorkerTimeoutError(self._ended(reason), self.current.implementation)
            if not ready:
                self.tick()
                stopped_at = (stopped_at or self.clock()) if tree.state(self.pid) == "T" else None
                if stopped_at is not None and self.clock() - stopped_at > self.max_stop_s:
                    self.kill()
                    reason = f"it was stopped by a signal from outside for {self.max_stop_s:g} s, and was killed"
                    raise WorkerTimeoutError(self._ended(reason), self.current.implementation, from_outside=True)

    def tick(self) -> None:
        """Runs every TICK_S while the process sends nothing."""
        self._watch_memory()

    def discard_output(self) -> None:
        """Read and drop the output so far: it belongs to earlier requests."""
        self._drain_output()
        self.output = b""

    def _drain_output(self) -> None:
        for _ in range(PIPE_READS):
            if select.select([self._output], [], [], 0)[0]:
                self._read_output()

    def _read_output(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._output, 65536)
            if data:
                self.output = (self.output + data)[-KEPT_OUTPUT:]
            else:
                time.sleep(0.01)  # closed by all writers: select() always finds it ready

    def _watch_memory(self) -> None:
        if self.memory_bytes is None or tree.resident_bytes(self.pid, TICK_S) <= self.memory_bytes:
            return
        if tree.unshared_bytes(self.pid) > self.memory_bytes:
            self.kill()
            allowed = f"{self.memory_bytes / 2**30:,.1f} GiB"
            message = f"out of host memory: it took more than the {allowed} that it may have, and was stopped"
            raise WorkerDiedError(self._ended(message), self.current.implementation)

    def _hang_location(self) -> str:
        """` at kernel.py:12`, from the Python stack. SIGUSR1 dumps it even while C code does not return."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
        return place_in_stack(dumped_stack(self._stacks, DUMP_S))

    def death_error(self) -> WorkerDiedError:
        """An error with the end of the process, its line, and its last output."""
        try:
            code = self.process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            return WorkerDiedError("the worker closed its pipe without an answer", self.current.implementation)
        self._drain_output()
        how = f"ended with exit status {code}"
        if code < 0:
            how = f"was killed by {signal_name(-code)}{place_in_stack(dumped_stack(self._stacks, 0))}"
            if -code in OUTSIDE:
                how += " (from outside" + "; often the system is out of memory" * (-code == signal.SIGKILL) + ")"
        lines = [line for line in map(one_line, self.output.decode(errors="replace").splitlines()) if line]
        message = f"the worker {how}" + (f": {lines[-1][:300]}" if lines else "")
        return WorkerDiedError(message, self.current.implementation, from_outside=-code in OUTSIDE)

    def _ended(self, message: str) -> str:
        return f"{message}; its process cannot be killed and was left behind" if self.left_behind else message

    def kill(self, wait_s: float = KILL_S) -> None:
        """End the process and all that it has started, and wait up to `wait_s` for its end."""
        tree.signal_all(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            self.process.wait(wait_s)
            tree.reap_group(self.pid, SHORT_KILL_S)
        except subprocess.TimeoutExpired:
            self.left_behind = True

    def close(self, wait_s: float = KILL_S) -> None:
        """`kill`, then close the pipes and remove the temporary folders that the process leaves."""
        self.kill(0.0 if self.left_behind else wait_s)
        for each in (self._output, self._stacks, self._lifeline):
            os.close(each)
        _caches.remove_temporary(self.pid)


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"


def dumped_stack(descriptor: int, wait_s: float) -> str:
    """The Python stack that a process dumps to its pipe within `wait_s`; empty if it dumps none."""
    found = b""
    while select.select([descriptor], [], [], min(wait_s, PAUSE_S) if found else wait_s)[0]:
        if not (data := os.read(descriptor, 65536)):
            break
        found += data
    return found.decode(errors="replace")
