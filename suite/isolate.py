"""Worker processes: a crash, a hang or an exhausted memory becomes a row, and the run goes on."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, BinaryIO

from suite.backends import ROOT
from suite.device import Device
from suite.errors import WorkerError


class WorkerDiedError(WorkerError):
    """The process ended without an answer. `last_started` is what it was at."""

    def __init__(self, message: str, last_started: str | None) -> None:
        super().__init__(message)
        self.last_started = last_started


class WorkerTimeoutError(WorkerDiedError):
    """No sign of life for the time allowed; the process was killed."""


class Pool:
    """One worker for `device`, started when first asked, replaced when it died or was discarded.

    `environment` is set in the worker on top of this process's.
    """

    def __init__(self, device: Device, environment: Mapping[str, str] | None = None) -> None:
        self.device = device
        self._environment = dict(environment or {})
        self._worker: _Process | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def ask(self, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Send `request`, return its answer. `timeout_s` is the longest silence allowed, not the whole duration.

        Raises `WorkerTimeoutError` or `WorkerDiedError`; the next call starts a fresh worker.
        """
        if self._worker is None:
            self._worker = _Process(self.device, self._environment)
        try:
            return self._worker.ask(request, timeout_s)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """End the current worker, if there is one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class _Process:
    def __init__(self, device: Device, extra: Mapping[str, str]) -> None:
        request_read, request_write = os.pipe()
        answer_read, answer_write = os.pipe()
        self.log: BinaryIO = tempfile.TemporaryFile(prefix="suite-worker-")  # noqa: SIM115 (closed in close)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": _python_path(), **extra}
        if device.type == "cuda":
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            environment["CUDA_VISIBLE_DEVICES"] = _visible(device.index)
        command = [sys.executable, "-m", "suite.worker", "--device", json.dumps(asdict(device))]
        command += ["--requests", str(request_read), "--answers", str(answer_write)]
        self.process = subprocess.Popen(
            command,
            pass_fds=(request_read, answer_write),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env=environment,
            start_new_session=True,
        )
        os.close(request_read)
        os.close(answer_write)
        self.requests = os.fdopen(request_write, "wb", buffering=0)
        self.answers = os.fdopen(answer_read, "rb", buffering=0)
        self.buffer = b""

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        started: str | None = request.get("implementation")
        try:
            self.requests.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            raise WorkerDiedError(self._obituary(), started) from None
        while True:
            line = self._read_line(timeout_s, started)
            answer: dict[str, Any] = json.loads(line)
            if answer.pop("event") == "done":
                return answer
            started = answer["implementation"]

    def _read_line(self, timeout_s: float, started: str | None) -> bytes:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.kill()
                raise WorkerTimeoutError(f"no result within {timeout_s:g} s; the worker was stopped", started)
            data = self.answers.read(65536)
            if not data:
                raise WorkerDiedError(self._obituary(), started)
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def _obituary(self) -> str:
        """How the process ended, and the last line that it printed."""
        code = self.process.wait()
        how = f"ended with exit status {code}"
        if code < 0:
            name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
            how = f"was killed by {name}"
            if name == "SIGKILL":
                how += " (from outside; often the system is out of memory)"
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - 4000))
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        return f"the worker {how}" + (f": {lines[-1][:300]}" if lines else "")

    def kill(self) -> None:
        """End the process and whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self.requests.close()
        self.answers.close()
        self.log.close()


def _visible(index: int) -> str:
    """The name under which CUDA shows the worker just device `index` of those visible here."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(index) if visible is None else visible.split(",")[index]


def _python_path() -> str:
    inherited = os.environ.get("PYTHONPATH")
    return str(ROOT) if not inherited else f"{ROOT}{os.pathsep}{inherited}"
