"""The process of one brought file, as the worker sees it: commands and answers over a signed channel, and stopped by
signals while it has nothing to do, so that what the file has started takes no time from others.
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

from suite.core import processes
from suite.core.errors import SuiteError
from suite.hardware.device import Device
from suite.worker import guest_protocol as p
from suite.worker import limits
from suite.worker.channel import JUDGE, KEY_BYTES, Channel, ClosedError, ForgedError
from suite.worker.child import KILL_S, Child, Start, WorkerDiedError
from suite.worker.nursery import ForkedProcess

FRAME_S = 10.0
"""How long the rest of a frame may take."""
ORPHAN_S = 1.0
"""How long to wait for the end of a killed orphan."""
WARM_UP_PINGS, PINGS, PING_QUANTILE = 5, 21, 0.75
"""Commands without effect by which the time of a command itself is measured, and the share that takes less."""
MAX_HANDOFF_NS = 1_000_000
"""The most that counts as the time of a command: on a busy machine some wait for a processor."""

A = TypeVar("A")


class RaisedError(SuiteError):
    """A command raised an exception in the guest. The text is the whole reason of a row."""

    def __init__(self, raised: p.Raised) -> None:
        super().__init__(raised.reason)
        self.kind = raised.kind


class GuestProcess(Child):
    """Starts a guest by `start`. `on_wait` is called every tenth of a second while an answer is awaited."""

    def __init__(self, start: Start, device: Device, on_wait: Callable[[], None]) -> None:
        ours, theirs = socket.socketpair()
        try:
            super().__init__(start, {"--channel": theirs.detach()})
        except WorkerDiedError:
            ours.close()
            raise
        key = os.urandom(KEY_BYTES)
        with contextlib.suppress(BrokenPipeError):  # it is dead, which `settle` finds
            ours.sendall(key)
        ours.settimeout(FRAME_S)
        self._channel = Channel(ours, key, JUDGE)
        self._on_wait = on_wait
        self.timeout_s = limits.FIRST_CALL_S
        self.handoff_ns = 0
        """What a command itself takes, in all but a few cases."""
        self._lifeline_process = 0
        self._known: set[int] = set()
        self._orphans: set[int] = set()
        self._runs = False
        self._synchronize: Callable[[], object] = lambda: None
        if device.type == "cuda":
            import torch

            self._synchronize = torch.cuda.synchronize

    def settle(self, handoff_ns: int = 0) -> None:
        """Wait until the guest has started, before it has seen any file. `handoff_ns` is what a command takes, where
        that is known of an earlier guest."""
        self._lifeline_process = self._expect(p.Settled).lifeline
        self.handoff_ns = handoff_ns or self._handoff()

    def _handoff(self) -> int:
        """The time of a command, as after the eviction of a cache."""
        spans = []
        for _ in range(WARM_UP_PINGS + PINGS):
            self.ask(p.Evict(), p.Finished)
            begin = perf_counter_ns()
            self.ask(p.Run("", 0), p.Ran)
            spans.append(perf_counter_ns() - begin)
        return min(MAX_HANDOFF_NS, sorted(spans[WARM_UP_PINGS:])[int(PING_QUANTILE * PINGS)])

    def ask(self, command: p.Command, expected: type[A], descriptors: Sequence[int] = ()) -> A:
        """The answer to a command, which must be of the type `expected`.

        Raises `RaisedError` for an exception in the guest; `WorkerDiedError` if it ends, is silent for too long, or if
        something else answers.
        """
        self._synchronize()  # what was written for the guest is there
        try:
            self._channel.send(command, descriptors)
        except ClosedError:
            raise self.died() from None
        return self._expect(expected)

    def answer(self, expected: type[A]) -> A:
        """A further answer to the latest command."""
        return self._expect(expected)

    def _expect(self, expected: type[A]) -> A:
        limit_s = limits.limit_s(self.current.phase, self.timeout_s)
        self.patience_s = self.timeout_s
        self.wait_for(self._channel.fileno(), limit_s, time.monotonic() + limit_s)
        try:
            found: Any = self._channel.receive(p.Answer)[0]
        except ClosedError:
            raise self.died() from None
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

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def resume(self) -> None:
        """Let the guest run, with all that it has started."""
        self._known, self._runs = set(processes.children(os.getpid())), True
        self._signal(signal.SIGCONT)

    def pause(self) -> None:
        """Stop the guest and all that it has started, in whatever sessions and groups."""
        self._find_orphans()
        self._signal(signal.SIGSTOP)

    def _find_orphans(self) -> None:
        """Processes whose parent in the guest has ended have this process as their parent."""
        if self._runs:
            self._orphans |= set(processes.children(os.getpid())) - self._known
        self._runs = False

    def _signal(self, number: signal.Signals) -> None:
        for pid in (self.process.pid, *self._orphans):
            for each in (pid, *processes.descendants(pid)):
                if each != self._lifeline_process:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(each, number)

    def close(self, patience_s: float = KILL_S) -> None:
        self._find_orphans()
        self._signal(signal.SIGKILL)
        super().close(patience_s)
        self._channel.close()
        for orphan in self._orphans:
            with contextlib.suppress(subprocess.TimeoutExpired):
                ForkedProcess(orphan).wait(ORPHAN_S)
