"""A worker process that is replaced when it dies: a crash, a hang or exhausted memory costs one row, not the run."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import overload

from suite.hardware.device import Device
from suite.worker import fork_server
from suite.worker.fork_server import ForkServer
from suite.worker.process import (
    HASTY_KILL_S,
    KILL_S,
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
    Reply,
    Request,
    TellReply,
    TellRequest,
    TimeGuestRequest,
    TimeReply,
    TimeRequest,
    TimingFailed,
    TuneReply,
    TuneRequest,
)

__all__ = ["Pool", "WorkerDiedError", "WorkerTimeoutError"]


class Pool:
    """One worker for `device`, started by the first request, replaced after it died or was discarded.

    `environment` is set in the worker on top of this process's. `memory_bytes` limits the host memory of the worker;
    None allows most of what is free.
    """

    def __init__(
        self, device: Device, environment: Mapping[str, str] | None = None, memory_bytes: int | None = None
    ) -> None:
        self.device = device
        self._environment = dict(environment or {})
        self._memory_bytes = memory_bytes
        self._server: ForkServer | None = None
        self._worker: WorkerProcess | None = None
        self._served: set[str] = set()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard(KILL_S if error is None or isinstance(error, Exception) else HASTY_KILL_S)
        server, self._server = self._server, None
        if server is not None:
            fork_server.give_back(server)

    @overload
    def ask(self, request: CheckRequest, *, timeout_s: float) -> CheckReply | Failed: ...
    @overload
    def ask(self, request: TellRequest, *, timeout_s: float) -> TellReply | Failed: ...
    @overload
    def ask(self, request: TimeRequest | TimeGuestRequest, *, timeout_s: float) -> TimeReply | TimingFailed: ...
    @overload
    def ask(self, request: TuneRequest, *, timeout_s: float) -> TuneReply | Failed: ...
    @overload
    def ask(self, request: DescribeRequest, *, timeout_s: float) -> DescribeReply | Failed: ...

    def ask(self, request: Request, *, timeout_s: float) -> Reply:
        """Send `request` and return the reply. `timeout_s` limits a first call; `limits.py` has the other limits.

        Raises `WorkerTimeoutError` or `WorkerDiedError`; the next call starts a fresh worker.
        """
        references = request.implementations if isinstance(request, TimeRequest) else (request.implementation,)
        in_this_process = [each for each in references if isinstance(each, str)]  # a brought file has its own
        try:
            if self._worker is None:
                self._worker = self.start()
            self._served.update(in_this_process)
            return self._worker.ask(request, timeout_s)
        except Exception:
            self.discard()
            raise
        except BaseException:  # interrupted
            self.discard(HASTY_KILL_S)
            raise

    def start(self) -> WorkerProcess:
        """A further worker, which the caller closes."""
        wanted = environment(self.device, self._environment)
        if self._server is None or not self._server.serves(self.device, wanted):
            self.renew()
            self._server = fork_server.take(self.device, wanted)
        return WorkerProcess(self._server, wanted, self._memory_bytes)

    def renew(self) -> None:
        """End the current worker; the next comes from a server of its own, so that addresses differ too."""
        self.discard()
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def served_others(self, name: str) -> bool:
        """Whether the worker has run another implementation than `name`, which may have changed the process."""
        return bool(self._served - {name})

    def discard(self, patience_s: float = KILL_S) -> None:
        """End the current worker, if there is one, and wait up to `patience_s` for its end."""
        worker, self._worker = self._worker, None
        self._served = set()
        if worker is not None:
            worker.close(patience_s)
