"""A worker process that is replaced when it dies, so that a crash, a hang or exhausted memory costs one row."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, overload

from suite.hardware.device import Device
from suite.worker import fork_server
from suite.worker.fork_server import ForkServer
from suite.worker.process import (
    KILL_S,
    SHORT_KILL_S,
    WorkerDiedError,
    WorkerProcess,
    WorkerTimeoutError,
    environment,
)
from suite.worker.protocol import (
    CheckReply,
    CheckRequest,
    DescribeReply,
    DescribeRequest,
    Failed,
    PeaksReply,
    PeaksRequest,
    ProbeReply,
    ProbeRequest,
    Reply,
    Request,
    SustainReply,
    SustainRequest,
    TimeExternalRequest,
    TimeReply,
    TimeRequest,
    TimingFailed,
    TuneReply,
    TuneRequest,
)

__all__ = ["Pool", "WorkerDiedError", "WorkerTimeoutError"]


class Worker(Protocol):
    """The part of `WorkerProcess` that a pool uses."""

    @property
    def spent(self) -> bool:
        """True if it answered and can answer no more."""

    def ask(self, request: Request, timeout_s: float) -> Reply: ...
    def close(self, wait_s: float = ...) -> None: ...


class Pool:
    """One worker for `device`, started by the first request, replaced after it died or was discarded.

    `environment` adds variables to this process's own. `memory_bytes` limits the host memory of the worker; None allows
    most of the free memory. `times`: the worker is likely to time calls, and shares the memory for that on a CPU.
    """

    network = ""
    """The library that connects the processes of a worker, with its version; empty for one process."""

    def __init__(
        self,
        device: Device,
        environment: Mapping[str, str] | None = None,
        memory_bytes: int | None = None,
        times: bool = True,
    ) -> None:
        self.device = device
        self._environment = dict(environment or {})
        self._memory_bytes = memory_bytes
        self._times = times
        self._server: ForkServer | None = None
        self._worker: Worker | None = None
        self._served: set[str] = set()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard(KILL_S if error is None or isinstance(error, Exception) else SHORT_KILL_S)
        server, self._server = self._server, None
        if server is not None:
            fork_server.release(server)

    @overload
    def ask(self, request: CheckRequest, *, timeout_s: float) -> CheckReply | Failed: ...
    @overload
    def ask(self, request: ProbeRequest, *, timeout_s: float) -> ProbeReply | Failed: ...
    @overload
    def ask(self, request: TimeRequest | TimeExternalRequest, *, timeout_s: float) -> TimeReply | TimingFailed: ...
    @overload
    def ask(self, request: SustainRequest, *, timeout_s: float) -> SustainReply | Failed: ...
    @overload
    def ask(self, request: TuneRequest, *, timeout_s: float) -> TuneReply | Failed: ...
    @overload
    def ask(self, request: DescribeRequest, *, timeout_s: float) -> DescribeReply | Failed: ...
    @overload
    def ask(self, request: PeaksRequest, *, timeout_s: float) -> PeaksReply | Failed: ...

    def ask(self, request: Request, *, timeout_s: float) -> Reply:
        """Send `request` and return the reply. `timeout_s` limits a first call; `processes/limits.py` has the others.

        Raises `WorkerTimeoutError` or `WorkerDiedError`; the next call starts a fresh worker.
        """
        self.make_ready(request)
        references = request.implementations if isinstance(request, TimeRequest) else (request.implementation,)
        in_this_process = [each for each in references if isinstance(each, str)]  # a user's file has its own process
        try:
            if self._worker is None:
                self._worker = self.start()
            self._served.update(in_this_process)
            reply = self._worker.ask(request, timeout_s)
            if self._worker.spent:
                self.discard()
            return reply
        except Exception:
            self.discard()
            raise
        except BaseException:  # interrupted
            self.discard(SHORT_KILL_S)
            raise

    def make_ready(self, request: Request) -> None:
        """Called before each request. A subclass may discard the worker."""

    def start(self) -> Worker:
        """One more worker, which the caller closes."""
        wanted = environment(self.device, self._environment)
        if self._server is None or not self._server.serves(self.device, wanted):
            self.renew()
            self._server = fork_server.acquire(self.device, wanted)
        return WorkerProcess(self._server, wanted, self._memory_bytes, self._times)

    def renew(self) -> None:
        """End the current worker and its fork server. The next worker has a new one, so that addresses differ too."""
        self.discard()
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def has_run_others(self, name: str) -> bool:
        """True if the worker has run another implementation than `name`, which may have changed the process."""
        return bool(self._served - {name})

    def discard(self, wait_s: float = KILL_S) -> None:
        """End the current worker, if there is one, and wait up to `wait_s` for its end."""
        worker, self._worker = self._worker, None
        self._served = set()
        if worker is not None:
            worker.close(wait_s)
