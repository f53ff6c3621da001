"""A pool of one worker process: a crash, a hang or an exhausted memory becomes a row, and the run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from suite.hardware.device import Device
from suite.worker.process import HASTY_KILL_S, KILL_S, WorkerDiedError, WorkerProcess, WorkerTimeoutError

__all__ = ["Pool", "WorkerDiedError", "WorkerTimeoutError"]


class Pool:
    """One worker for `device`, started when first asked, replaced when it died or was discarded.

    `environment` is set in the worker on top of this process's. `memory_bytes` is the host memory that the worker may
    take; most of what is free if None.
    """

    def __init__(
        self, device: Device, environment: Mapping[str, str] | None = None, memory_bytes: int | None = None
    ) -> None:
        self.device = device
        self._environment = dict(environment or {})
        self._memory_bytes = memory_bytes
        self._worker: WorkerProcess | None = None
        self._served: set[str] = set()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard(KILL_S if error is None or isinstance(error, Exception) else HASTY_KILL_S)

    def ask(self, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Send `request`, return its answer. `timeout_s` is for a first call; see `protocol.py` for the others.

        Raises `WorkerTimeoutError` or `WorkerDiedError`; the next call starts a fresh worker.
        """
        try:
            if self._worker is None:
                self._worker = WorkerProcess(self.device, self._environment, self._memory_bytes)
            self._served.update(request.get("implementations") or [request["implementation"]])
            return self._worker.ask(request, timeout_s)
        except Exception:
            self.discard()
            raise
        except BaseException:  # interrupted
            self.discard(HASTY_KILL_S)
            raise

    def served_others(self, name: str) -> bool:
        """Whether the worker has run another implementation than `name`, which may have left something behind."""
        return bool(self._served - {name})

    def discard(self, patience_s: float = KILL_S) -> None:
        """End the current worker, if there is one."""
        worker, self._worker = self._worker, None
        self._served = set()
        if worker is not None:
            worker.close(patience_s)
