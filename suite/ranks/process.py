"""The parent's side of the ranks: requests to all of them and their events, over a socket each (`protocol.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import partial

from suite import hardware
from suite.core.package import qualified
from suite.core.phases import Phase, Started
from suite.core.text import one_line
from suite.hardware.device import Device
from suite.implementations.failure import place_in_stack
from suite.processes import limits, tree
from suite.processes.child import (
    DUMP_S,
    KILL_S,
    OUTSIDE,
    TICK_S,
    Child,
    Process,
    WorkerDiedError,
    WorkerTimeoutError,
    dumped_stack,
    environment_with_suite,
    signal_name,
)
from suite.processes.codec import to_json
from suite.ranks.merge import is_fault, merged
from suite.worker.process import MEMORY_SHARE
from suite.worker.protocol import (
    Done,
    Event,
    ProtocolError,
    Ready,
    Reply,
    Request,
    TimeRequest,
    decode_numbered,
    encode_numbered,
    name_of,
)

FAILURES = "failures of ranks: "
"""Begins the line in which the launcher reports the exit status of the ranks that failed."""
MESSAGE_LENGTH = 300
GRACE_S = 4.0
"""Time for the other ranks to answer after one has failed: they may wait for it in vain."""
WAITING = re.compile(r"/torch/distributed/|in (synchronize|wait|barrier|block_until_ready)$")
"""The innermost frame of a rank that waits for others."""


class RankChannel:
    """The parent's ends of one rank's socket and stack pipe, and the rank's state."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.socket, self.child_socket = socket.socketpair()
        self.stacks, self.child_stacks = os.pipe()
        self.pid = 0
        self.partial, self.lines = b"", list[bytes]()
        self.current = Started(None, Phase.STARTING)
        self.heard_at = 0.0
        """Time of its last message, or of the request, by the clock of `RanksProcess`."""
        self.reply: Reply | None = None

    def deadline(self, timeout_s: float) -> float:
        return self.heard_at + limits.limit_s(self.current.phase, timeout_s)

    def read(self) -> bool:
        """Take what has arrived. False at the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        *whole, self.partial = (self.partial + data).split(b"\n")
        self.lines += whole
        return bool(data)

    def stack(self, wait_s: float) -> str:
        """The Python stack that the rank has dumped; empty if it dumps none within `wait_s`."""
        return dumped_stack(self.stacks, wait_s)

    def close(self) -> None:
        self.socket.close()
        os.close(self.stacks)


class RanksProcess(Child):
    """`ranks` processes with this `environment`, and the launcher that started them.

    `memory_bytes` limits the host memory of all together; None allows most of the free memory. Raises `WorkerDiedError`
    if the system cannot start a process.
    """

    def __init__(
        self, device: Device, ranks: int, environment: Mapping[str, str], memory_bytes: int | None = None
    ) -> None:
        free = hardware.free_host_bytes()
        memory_bytes = memory_bytes or (None if free is None else int(MEMORY_SHARE * free))
        self.spent = False
        """True once a rank has failed while others did not answer: all have been ended."""
        self.number = 0
        self.ranks = [RankChannel(rank) for rank in range(ranks)]
        passed = {f"--channel-{each.rank}": each.child_socket.detach() for each in self.ranks}
        passed |= {f"--stacks-{each.rank}": each.child_stacks for each in self.ranks}
        super().__init__(partial(_start, device, environment, ranks), passed, memory_bytes)
        self._arrivals = select.epoll()
        for each in self.ranks:
            self._arrivals.register(each.socket.fileno(), select.EPOLLIN)

    def ask(self, request: Request, timeout_s: float) -> Reply:
        """One reply of all ranks to `request`. Raises `WorkerDiedError`, after which only `close` may be called."""
        name = None if isinstance(request, TimeRequest) else name_of(request.implementation)
        self.number += 1
        self.max_stop_s = timeout_s
        self.discard_output()
        for each in self.ranks:
            starting = each.current.phase is Phase.STARTING
            each.current = Started(name, Phase.STARTING if starting else Phase.PREPARING)
            each.heard_at, each.reply = self.clock(), None
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its end is found below
                each.socket.sendall(encode_numbered(request, self.number))
        failed_at: float | None = None
        while waiting := [each for each in self.ranks if each.reply is None]:
            if failed_at is None and any(each.reply is not None and is_fault(each.reply) for each in self.ranks):
                failed_at = self.clock()
            try:
                self._wait(waiting, timeout_s, failed_at)
            except WorkerTimeoutError:
                if failed_at is None:
                    raise
                self.spent = True
                break
        return merged({each.rank: each.reply for each in self.ranks if each.reply is not None}, len(self.ranks))

    def _wait(self, waiting: list[RankChannel], timeout_s: float, failed_at: float | None) -> None:
        """Wait for an event of some rank, and take it. After a failure the others have GRACE_S to answer."""
        slowest = min(waiting, key=lambda each: each.deadline(timeout_s))
        deadline, self.current = slowest.deadline(timeout_s), slowest.current
        if failed_at is not None:
            deadline = min(deadline, failed_at + GRACE_S)
        self.wait_for(self._arrivals.fileno(), limits.limit_s(self.current.phase, timeout_s), deadline)
        for descriptor, _ in self._arrivals.poll(0):
            (rank,) = (each for each in self.ranks if each.socket.fileno() == descriptor)
            if not rank.read():
                raise self.death_error()
            self._take(rank)

    def _take(self, rank: RankChannel) -> None:
        """Take the events that have arrived from a rank."""
        while rank.lines:
            line = rank.lines.pop(0)
            rank.heard_at = self.clock()
            if not rank.pid:
                rank.pid = int(line)
                continue
            try:
                number, event = decode_numbered(line)
            except ProtocolError as error:
                raise WorkerDiedError(f"rank {rank.rank}: {error}", rank.current.implementation) from error
            if not isinstance(event, Event) or number < self.number:  # of a process that a kernel has forked
                continue
            match event:
                case Started():
                    rank.current = event
                case Done(reply):
                    rank.reply = reply
                case Ready():
                    rank.current = Started(rank.current.implementation, Phase.PREPARING)

    # Faults

    def tick(self) -> None:
        """Find a rank that has ended: the others may answer with an error of the connection to it."""
        super().tick()
        if any(each.pid and each.reply is None and tree.state(each.pid) in ("", "Z") for each in self.ranks):
            raise self.death_error()

    def death_error(self) -> WorkerDiedError:
        """An error with the rank that ended first, how it ended, and its line."""
        error = super().death_error()
        found = re.search(rf"^{FAILURES}(.*)$", self.output.decode(errors="replace"), re.MULTILINE)
        for rank, (code, message) in (json.loads(found[1]) if found else {}).items():
            channel = self.ranks[int(rank)]
            how = f"ended with exit status {code} ({one_line(message)[:MESSAGE_LENGTH]})"
            if code < 0:
                how = f"was killed by {signal_name(-code)}{place_in_stack(channel.stack(0))}"
            return WorkerDiedError(
                f"rank {rank} {how}; the other ranks were ended",
                channel.current.implementation,
                from_outside=-code in OUTSIDE,
            )
        return error

    def _hang_location(self) -> str:
        """`; rank 1 is at mine.py:12, rank 0 waits at mine.py:9`: the lines of the ranks that do not answer."""
        late = [each for each in self.ranks if each.reply is None]
        for each in late:
            with contextlib.suppress(OSError):
                os.kill(each.pid or self.pid, signal.SIGUSR1)
        hanging: list[str] = []
        waiting: list[str] = []
        for each in late:
            stack = each.stack(DUMP_S)
            inner = re.search(r'^\s*File "(.+)$', stack, re.MULTILINE)
            is_waiting = inner is not None and WAITING.search(inner[1]) is not None
            place = place_in_stack(stack) or f" in a {each.current.phase}"
            (waiting if is_waiting else hanging).append(f"rank {each.rank} {'waits' if is_waiting else 'is'}{place}")
        return f"; {', '.join(hanging + waiting)}"

    def _watch_memory(self) -> None:
        """Name the rank that has most memory, if all together take more than they may."""
        if self.memory_bytes is None or tree.resident_bytes(self.pid, TICK_S) <= self.memory_bytes:
            return
        largest = max((each for each in self.ranks if each.pid), key=lambda each: tree.resident_bytes(each.pid, TICK_S))
        try:
            super()._watch_memory()
        except WorkerDiedError as error:
            raise WorkerDiedError(f"rank {largest.rank}: {error}", largest.current.implementation) from error

    def close(self, wait_s: float = KILL_S) -> None:
        super().close(wait_s)
        self._arrivals.close()
        for each in self.ranks:
            each.close()


def _start(device: Device, environment: Mapping[str, str], ranks: int, ends: Mapping[str, int], output: int) -> Process:
    """Start the launcher with the descriptors `ends`."""
    command = [sys.executable, "-P", "-m", qualified("suite.ranks.launcher"), "--device", json.dumps(to_json(device))]
    for name in ("--stacks", "--lifeline"):
        command += [name, str(ends[name])]
    command += ["--channels", json.dumps([ends[f"--channel-{rank}"] for rank in range(ranks)])]
    command += ["--rank-stacks", json.dumps([ends[f"--stacks-{rank}"] for rank in range(ranks)])]
    return subprocess.Popen(
        command,
        pass_fds=tuple(ends.values()),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment_with_suite(environment),
        start_new_session=True,
    )
