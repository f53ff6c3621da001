"""The parent's side of one worker process: requests to it and events from it over two pipes (`protocol.py`)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import partial

from suite import hardware
from suite.core.phases import Phase
from suite.hardware.device import Device
from suite.processes import limits
from suite.processes.child import (
    KILL_S,
    SHORT_KILL_S,
    Child,
    WorkerDiedError,
    WorkerTimeoutError,
    environment_with_suite,
)
from suite.worker.fork_server import ForkServer
from suite.worker.protocol import (
    REPLIES,
    Done,
    Event,
    ProtocolError,
    Ready,
    Reply,
    Request,
    Started,
    TimeExternalRequest,
    TimeReply,
    TimeRequest,
    decode_numbered,
    encode_numbered,
    name_of,
)

__all__ = ["KILL_S", "SHORT_KILL_S", "WorkerDiedError", "WorkerProcess", "WorkerTimeoutError"]

MEMORY_SHARE = 0.9
"""Fraction of the free host memory that a worker may use."""


class WorkerProcess(Child):
    """A worker with this `environment`. Raises `WorkerDiedError` if the system cannot start a process.

    `memory_bytes` limits the host memory of the worker and of all that it starts; None allows most of the free memory.
    times: it is likely to time calls.
    """

    spent = False

    def __init__(
        self,
        server: ForkServer,
        environment: Mapping[str, str],
        memory_bytes: int | None = None,
        times: bool = True,
    ) -> None:
        free = hardware.free_host_bytes()
        memory_bytes = memory_bytes or (None if free is None else int(MEMORY_SHARE * free))
        self.partial, self.lines = b"", list[bytes]()
        self.number = 0
        """Number of the latest request."""
        pipes: list[int] = []
        try:
            for _ in range(2):
                pipes += os.pipe()
        except OSError as error:
            for each in pipes:
                os.close(each)
            raise WorkerDiedError(f"no worker process could be started: {error.strerror}", None) from error
        requests, self._requests, self._events, events = pipes
        try:
            start = partial(server.fork, environment_with_suite(environment), times)
            super().__init__(start, {"--requests": requests, "--events": events}, memory_bytes)
        except WorkerDiedError:
            os.close(self._requests)
            os.close(self._events)
            raise

    def ask(self, request: Request, timeout_s: float) -> Reply:
        """The reply to `request`. Raises `WorkerDiedError`, after which only `close` may be called."""
        name = None if isinstance(request, TimeRequest) else name_of(request.implementation)
        starting = self.current.phase is Phase.STARTING
        self.current = Started(name, Phase.STARTING if starting else Phase.PREPARING)
        self.number += 1
        self.max_stop_s = timeout_s
        self.discard_output()
        with contextlib.suppress(BrokenPipeError):  # the worker is dead; reading its pipe tells how it ended
            os.write(self._requests, encode_numbered(request, self.number))
        while True:
            match self._next(limits.limit_s(self.current.phase, timeout_s)):
                case Done(reply) if _answers(reply, request):
                    return reply
                case Ready() if self.current.phase is Phase.STARTING:
                    self.current = Started(name, Phase.PREPARING)
                case Started() as started:
                    self.current = started
                case _:
                    raise self._unreadable()

    def _next(self, limit_s: float) -> Event:
        """The next event of the current request, within `limit_s` seconds."""
        deadline = self.clock() + limit_s
        while True:
            while not self.lines:
                self.wait_for(self._events, limit_s, deadline)
                if not (data := os.read(self._events, 65536)):
                    raise self.death_error()
                *whole, self.partial = (self.partial + data).split(b"\n")
                self.lines += whole
            try:
                number, message = decode_numbered(self.lines.pop(0))
            except ProtocolError:
                raise self._unreadable() from None
            expected = 0 if isinstance(message, Ready) else self.number
            if number < expected:  # sent by a process that a kernel has forked
                continue
            if number > expected or not isinstance(message, Event):
                raise self._unreadable()
            return message

    def _unreadable(self) -> WorkerDiedError:
        return WorkerDiedError("the worker's answer cannot be read; it was stopped", self.current.implementation)

    def close(self, wait_s: float = KILL_S) -> None:
        super().close(wait_s)
        os.close(self._requests)
        os.close(self._events)


def _answers(reply: Reply, request: Request) -> bool:
    """True if the reply is of the right type, and its times are of the implementations of the request."""
    if isinstance(reply, TimeReply) and isinstance(request, TimeRequest):
        return set(reply.timings) == set(request.implementations)
    if isinstance(reply, TimeReply) and isinstance(request, TimeExternalRequest):
        return set(reply.timings) == {request.implementation.name}
    return isinstance(reply, REPLIES[type(request)])


def environment(device: Device, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that runs kernels: of the GPUs it sees only `device`, as its first."""
    threads = hardware.thread_settings() if device.type == "cpu" else {}
    variables = {**os.environ, **threads, **extra}
    if device.type == "cuda":
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        variables["CUDA_VISIBLE_DEVICES"] = _visible(device.index)
    return variables


def _visible(index: int) -> str:
    """The value of CUDA_VISIBLE_DEVICES that leaves the worker only device `index` of those visible here."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(index) if visible is None else visible.split(",")[index]
