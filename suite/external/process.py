"""The worker's side of the process of one user's file: commands and answers over a signed channel.

Signals stop the process while it has nothing to do, so that threads and processes of the file take no time from others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, TypeVar

from suite.core.errors import SuiteError
from suite.external import protocol as p
from suite.external.channel import KEY_BYTES, WORKER, Channel, ClosedError, ForgedError
from suite.hardware.device import Device
from suite.processes import limits, tree
from suite.processes.child import KILL_S, Child, Start, WorkerDiedError
from suite.processes.forked import ForkedProcess

FRAME_S = 10.0
"""Time allowed for the rest of a frame."""
ORPHAN_S = 1.0
"""Time allowed for a killed orphan to end."""
WARM_UP_PINGS, PINGS, PING_QUANTILE = 5, 21, 0.75
"""Commands without effect that measure the cost of a command, and the quantile of their times that is its cost."""
MAX_HANDOFF_NS = 1_000_000
"""Largest cost of a command that is accepted: on a busy machine some commands wait for a processor."""

A = TypeVar("A")


class RaisedError(SuiteError):
    """A command raised an exception in the external process. The text is the whole reason of a row."""

    def __init__(self, raised: p.Raised) -> None:
        super().__init__(raised.reason)
        self.kind = raised.kind


class ExternalProcess(Child):
    """An external process that `start` starts. `on_wait` runs every tenth of a second while an answer is awaited."""

    def __init__(self, start: Start, device: Device, on_wait: Callable[[], None]) -> None:
        ours, theirs = socket.socketpair()
        try:
            super().__init__(start, {"--channel": theirs.detach()})
        except WorkerDiedError:
            ours.close()
            raise
        key = os.urandom(KEY_BYTES)
        with contextlib.suppress(BrokenPipeError):  # the process is dead, which `wait_until_ready` reports
            ours.sendall(key)
        ours.settimeout(FRAME_S)
        self._channel = Channel(ours, key, WORKER)
        self._on_wait = on_wait
        self.timeout_s = limits.FIRST_CALL_S
        self.handoff_ns = 0
        """Cost of a command, which most commands do not exceed."""
        self._lifeline_process = 0
        self._known: set[int] = set()
        self._orphans: set[int] = set()
        self._runs = False
        self._synchronize: Callable[[], object] = lambda: None
        if device.type == "cuda":
            import torch

            self._synchronize = torch.cuda.synchronize

    def wait_until_ready(self, handoff_ns: int = 0) -> None:
        """Wait until the process has started; it has loaded no file yet.

        `handoff_ns` is the cost of a command, if an earlier process has shown it; 0 to measure it.
        """
        self._lifeline_process = self._expect(p.Ready).lifeline
        self.handoff_ns = handoff_ns or self._measure_handoff()

    def _measure_handoff(self) -> int:
        """Measure the cost of a command that follows an eviction of the cache."""
        spans = []
        for _ in range(WARM_UP_PINGS + PINGS):
            self.ask(p.Evict(), p.Finished)
            begin = perf_counter_ns()
            self.ask(p.Run("", 0), p.Ran)
            spans.append(perf_counter_ns() - begin)
        return min(MAX_HANDOFF_NS, sorted(spans[WARM_UP_PINGS:])[int(PING_QUANTILE * PINGS)])

    def ask(self, command: p.Command, expected: type[A], descriptors: Sequence[int] = ()) -> A:
        """Send a command and return its answer, which must be of the type `expected`.

        Raises `RaisedError` for an exception in the process; `WorkerDiedError` if it ends, is silent for too long, or
        if something else answers.
        """
        self._synchronize()  # writes to the shared memory are complete
        try:
            self._channel.send(command, descriptors)
        except ClosedError:
            raise self.death_error() from None
        return self._expect(expected)

    def answer(self, expected: type[A]) -> A:
        """The next answer to the latest command, which has several."""
        return self._expect(expected)

    def _expect(self, expected: type[A]) -> A:
        limit_s = limits.limit_s(self.current.phase, self.timeout_s)
        self.max_stop_s = self.timeout_s
        self.wait_for(self._channel.fileno(), limit_s, time.monotonic() + limit_s)
        try:
            found: Any = self._channel.receive(p.Answer)[0]
        except ClosedError:
            raise self.death_error() from None
        except ForgedError as error:
            raise WorkerDiedError(str(error), self.current.implementation) from None
        if isinstance(found, p.Raised):
            raise RaisedError(found)
        if not isinstance(found, expected):
            raise WorkerDiedError(str(ForgedError()), self.current.implementation)
        return found

    def tick(self) -> None:
        super().tick()
        self._on_wait()

    def resume(self) -> None:
        """Let the process run, with all that it has started."""
        self._known, self._runs = set(tree.children(os.getpid())), True
        self._signal(signal.SIGCONT)

    def pause(self) -> None:
        """Stop the process and all that it has started, in any session and group."""
        self._find_orphans()
        self._signal(signal.SIGSTOP)

    def _find_orphans(self) -> None:
        """Note processes of the file whose parent has ended: this process has adopted them."""
        if self._runs:
            self._orphans |= set(tree.children(os.getpid())) - self._known
        self._runs = False

    def _signal(self, number: signal.Signals) -> None:
        for pid in (self.pid, *self._orphans):
            for each in (pid, *tree.descendants(pid)):
                if each != self._lifeline_process:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(each, number)

    def close(self, wait_s: float = KILL_S) -> None:
        self._find_orphans()
        self._signal(signal.SIGKILL)
        super().close(wait_s)
        self._channel.close()
        for orphan in self._orphans:
            with contextlib.suppress(subprocess.TimeoutExpired):
                ForkedProcess(orphan).wait(ORPHAN_S)
