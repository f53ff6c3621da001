"""Measures the first calls of an implementation in fresh processes: with empty compile caches, and with filled ones."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from suite.core.text import joined_reasons, one_line
from suite.hardware.device import Device
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.results.row import Attempt, Row
from suite.runner.options import Options
from suite.worker.pool import Pool, WorkerDiedError
from suite.worker.protocol import CheckRequest, Failed

CACHE_VARIABLES = (
    "XDG_CACHE_HOME",
    "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "JAX_COMPILATION_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
)
"""Environment variables that name the compilers' cache folders: of CUDA sources, Triton, the driver and XLA."""


def measure(row: Row, case: Case, implementation: Implementation, device: Device, options: Options) -> None:
    """Set the compile columns of a row: first with empty caches, then with the caches that the first call filled."""
    with tempfile.TemporaryDirectory(prefix="suite-caches-", ignore_cleanup_errors=True) as folder:
        caches = {name: str(Path(folder, name.lower())) for name in CACHE_VARIABLES}
        for column in ("compile_s", "compile_warm_s"):
            seconds, problem = _first_call(case, implementation, device, options, caches)
            row.fill({column: seconds})
            if problem:
                row.compiled = Attempt.FAILED
                row.reason = joined_reasons(row.reason, f"not compiled again: {problem}")
                return
    row.compiled = Attempt.DONE


def _first_call(
    case: Case, implementation: Implementation, device: Device, options: Options, caches: Mapping[str, str]
) -> tuple[float | None, str]:
    """Seconds of a first call in a fresh process, and the reason if it failed."""
    request = CheckRequest(case, implementation.reference, options.seed, options.timeout_s)
    with Pool(device, caches, options.memory_bytes) as fresh:
        try:
            reply = fresh.ask(request, timeout_s=options.timeout_s)
        except WorkerDiedError as error:
            return None, str(error)
    if isinstance(reply, Failed):
        return None, one_line(reply.reason)
    return reply.first_call_s, "" if reply.status == "ok" else one_line(reply.reason)
