"""Starts a process that makes one call (`once.py`), alone or under Nsight Compute."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from suite.core.errors import WorkerError
from suite.core.package import qualified, search_path
from suite.core.text import one_line
from suite.processes import tree
from suite.processes.codec import to_json
from suite.profiling import nsight
from suite.profiling.once import Once
from suite.worker.process import environment

MAX_REASON_LENGTH = 400


class OnceError(WorkerError):
    """The call or its process failed. The text is the reason."""


def profile(once: Once, executable: str, *, cold: bool, timeout_s: float) -> dict[str, Any]:
    """The columns of a row that Nsight Compute fills. Raises `OnceError` and `nsight.NsightError`."""
    with tempfile.TemporaryDirectory(prefix="suite-ncu-") as folder:
        log = Path(folder, "ncu.csv")
        try:
            run(once, nsight.command(executable, log, cold=cold), timeout_s)
        except OnceError as error:
            nsight.refuse(f"{_text(log)}\n{error}")
            raise
        return nsight.columns(nsight.kernels(_text(log)))


def code(once: Once, timeout_s: float) -> list[str]:
    """Write the code that `once` asks for, and return the names of the files. Files of an earlier run are removed.

    Raises `OnceError`.
    """
    shutil.rmtree(once.folder, ignore_errors=True)
    run(once, (), timeout_s)
    return sorted(path.name for path in Path(once.folder).glob("*"))


def counts(once: Once, timeout_s: float) -> dict[str, Any]:
    """The columns of a row that count one call on a CPU. Raises `OnceError`."""
    with tempfile.TemporaryDirectory(prefix="suite-counts-") as folder:
        path = Path(folder, "counts.json")
        run(replace(once, counts=str(path)), (), timeout_s)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def run(once: Once, before: Sequence[str], timeout_s: float) -> None:
    """Make the call in a process of its own. `before` is the command line of a program that runs it, or empty.

    Raises `OnceError`.
    """
    command = [*before, sys.executable, "-P", "-m", qualified("suite.profiling.once"), json.dumps(to_json(once))]
    path = search_path(os.environ.get("PYTHONPATH"))
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**environment(once.device, {}), "PYTHONPATH": path, "LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            raise OnceError(f"no process could be started: {error.strerror}") from error
        try:
            status = process.wait(timeout_s)
        except BaseException as error:  # including an interruption
            tree.signal_all(process.pid, signal.SIGKILL)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise OnceError(f"it did not end within {timeout_s:g} s and was stopped") from None
            raise
        if status:
            output.seek(0)
            raise OnceError(_reason(output.read().decode(errors="replace"), status))


def _reason(output: str, status: int) -> str:
    """The last line that the call printed. Lines of ncu begin with == and are skipped."""
    lines = [line for line in map(one_line, output.splitlines()) if line]
    own = [line for line in lines if not line.startswith("==")] or lines
    how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
    return own[-1][:MAX_REASON_LENGTH] if own else f"its process {how}"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
