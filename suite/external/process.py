"""The worker's side of the process of one user's file: commands and answers over a signed channel.

Signals stop the process while it has nothing to do, so that threads and processes of the file take no time from others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns, sleep, thread_time
from typing import Any, ClassVar, TypeVar

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
PAUSE_NS = 60_000
"""The time of an eviction on an H200."""
WARM_UP_PINGS, PINGS, PING_QUANTILE = 5, 21, 0.75
"""Commands without effect that measure the cost of a command, and the quantile of their times that is its cost."""
MAX_HANDOFF_NS = 1_000_000
"""Largest cost of a command that is accepted: on a busy machine some commands wait for a processor."""

STOP_S = 1.0
"""Processor time of this thread within which a process and all that it has started must stop after a signal."""

A = TypeVar("A")


def _send_signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _reap(pid: int) -> bool:
    """True if a child has ended."""
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True


class RaisedError(SuiteError):
    """A command raised an exception in the external process. The text is the whole reason of a row."""

    def __init__(self, raised: p.Raised) -> None:
        super().__init__(raised.reason)
        self.kind = raised.kind


class ExternalProcess(Child):
    """An external process that `start` starts. `on_wait` runs every tenth of a second while an answer is awaited."""

    _adopted: ClassVar[set[int]] = set()
    """External processes and their orphans. Each orphan belongs to the first process that was stopped since."""
    _escaped: ClassVar[bool] = False
    """True if orphans of some file could not be stopped."""

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
        ExternalProcess._adopted.add(self.pid)
        self._on_wait = on_wait
        self.timeout_s = limits.FIRST_CALL_S
        self.handoff_ns = 0
        """Cost of a command, which most commands do not exceed."""
        self._lifeline_process = 0
        self._known: set[int] = set()
        self._orphans: set[int] = set()
        self._runs = False
        self._stopped: tuple[int, ...] = ()
        """The processes that `stop` has stopped; empty while this one may run."""
        self._run_ns: dict[int, int] = {}
        """The processor time of each of them when it was stopped."""
        self._device_type = device.type
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
        """Measure the cost of a command that follows a pause, as while this process evicts the cache.

        It is part of the latency of calls on a GPU; on a CPU the latency is that of samples.
        """
        if self._device_type == "cpu":
            return 0
        spans = []
        for _ in range(WARM_UP_PINGS + PINGS):
            paused_at = perf_counter_ns()
            while perf_counter_ns() - paused_at < PAUSE_NS:
                pass
            begin = perf_counter_ns()
            self.ask(p.Run("", 0), p.Ran)
            spans.append(perf_counter_ns() - begin)
        return min(MAX_HANDOFF_NS, sorted(spans[WARM_UP_PINGS:])[int(PING_QUANTILE * PINGS)])

    def ask(self, command: p.Command, expected: type[A], descriptors: Sequence[int] = ()) -> A:
        """Send a command and return its answer, which must be of the type `expected`.

        Raises `RaisedError` for an exception in the process; `WorkerDiedError` if it ends, is silent for too long, or
        if something else answers.
        """
        stopped = bool(self._stopped)
        if stopped:
            self.stay_awake()
        self._synchronize()  # writes to the shared memory are complete
        self._send(command, descriptors)
        try:
            return self._expect(expected)
        finally:
            if stopped:
                self.stop()

    def sample(self, command: p.Sample) -> p.Sampled:
        """Let the process run after `stop`, until it has made a sample. `stop` follows, after the sample's span."""
        for pid in self._stopped:
            _send_signal(pid, signal.SIGCONT)
        self._send(command)
        answer = self._expect(p.Sampled)
        for pid in self._stopped:
            _send_signal(pid, signal.SIGSTOP)
        return answer

    def _send(self, command: p.Command, descriptors: Sequence[int] = ()) -> None:
        try:
            self._channel.send(command, descriptors)
        except ClosedError:
            raise self.death_error() from None

    def answer(self, expected: type[A]) -> A:
        """The next answer to the latest command, which has several."""
        return self._expect(expected)

    def _expect(self, expected: type[A]) -> A:
        limit_s = limits.limit_s(self.current.phase, self.timeout_s)
        self.max_stop_s = self.timeout_s
        self.wait_for(self._channel.fileno(), limit_s, self.clock() + limit_s)
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
        self._find_orphans()
        self._on_wait()

    def resume(self) -> None:
        """Let the process run, with all that it has started."""
        self._stopped = ()
        self._known, self._runs = set(tree.children(os.getpid())), True
        self._signal(signal.SIGCONT)

    def pause(self) -> None:
        """Stop the process and all that it has started, in any session and group. Raises `RaisedError` if it cannot."""
        self.stop()
        self._stopped = ()
        escapes = self._note_escapes()
        self._runs = False
        if escapes:
            raise RaisedError(p.Raised("error", "it starts processes faster than they can be stopped"))

    def stop(self) -> None:
        """Stop the process, and all that it has started, until `sample` or `ask` lets it run. Returns when it stands
        still."""
        deadline, stopped = thread_time() + STOP_S, dict[int, None]()
        while thread_time() < deadline:
            self._find_orphans()
            running = [pid for pid in self._family() if pid not in stopped or not tree.stands_still(pid)]
            if not running:
                break
            for pid in running:
                _send_signal(pid, signal.SIGSTOP)
            stopped |= dict.fromkeys(running)
            sleep(0)
        self._stopped = tuple(stopped)
        self._run_ns = {pid: tree.run_ns(pid) for pid in stopped}

    def expect_still(self) -> None:
        """Raise `RaisedError` if the process, or one that it has started, has run since `stop`."""
        ran = self._find_orphans() and not ExternalProcess._escaped
        ran |= any(tree.run_ns(pid) > run_ns for pid, run_ns in self._run_ns.items())
        if ran or any(pid not in self._run_ns for pid in self._family()):
            reason = "it ran while a signal had stopped it: it may have computed before its call"
            raise RaisedError(p.Raised("error", reason))

    def stay_awake(self) -> None:
        """End the effect of `stop`."""
        stopped, self._stopped = self._stopped, ()
        for pid in stopped:
            _send_signal(pid, signal.SIGCONT)

    def _find_orphans(self) -> bool:
        """Note processes of the file whose parent has ended: this process has adopted them. True if there are new ones.

        Those that have ended are reaped: a file may start so many that the system runs out of process ids.
        """
        if not self._runs:
            return False
        children = set(tree.children(os.getpid()))
        found = children - self._known - ExternalProcess._adopted
        ended = set(filter(_reap, self._orphans | found))
        self._orphans = (self._orphans | found) - ended
        ExternalProcess._adopted = (ExternalProcess._adopted | found) - ended
        self._known = children - ended
        return bool(found)

    def _note_escapes(self) -> bool:
        """True if orphans start others faster than these are found: it is then unknown which file later orphans come
        from."""
        found = self._find_orphans()
        ExternalProcess._escaped |= found
        return found

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._family():
            _send_signal(pid, number)

    def _family(self) -> Iterator[int]:
        """This process first, then all that it has started."""
        for pid in (self.pid, *self._orphans):
            yield from (each for each in (pid, *tree.descendants(pid)) if each != self._lifeline_process)

    def close(self, wait_s: float = KILL_S) -> None:
        self._find_orphans()
        self._signal(signal.SIGKILL)
        self._note_escapes()
        self._signal(signal.SIGKILL)
        super().close(wait_s)
        self._channel.close()
        for orphan in self._orphans:
            with contextlib.suppress(subprocess.TimeoutExpired):
                ForkedProcess(orphan).wait(ORPHAN_S)


def call_ns(claimed_ns: float, span_ns: float, cost_ns: float) -> float:
    """The time of a call: the claim of the external process, but at least `span_ns` less `cost_ns`.

    `span_ns` is the time by this process's clock. Raises `RaisedError` for a larger claim.
    """
    check_claim(claimed_ns, span_ns)
    return max(claimed_ns, span_ns - cost_ns)


def check_claim(claimed_ns: float, span_ns: float) -> None:
    """Raise `RaisedError` for a call that took longer by the process's clock than by this process's."""
    if claimed_ns > span_ns:
        reason = f"its process reports {claimed_ns:g} ns for a call that took {span_ns:g} ns: a clock was replaced"
        raise RaisedError(p.Raised("error", reason))
