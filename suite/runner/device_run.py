"""The lines of one device on one case: each is checked, then those that agree are timed together."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite import hardware
from suite.core.text import one_line
from suite.hardware import Peaks, measured_peaks
from suite.hardware.device import Device
from suite.implementations.builtin import Implementation
from suite.problem.operation import Case, Operation
from suite.results.row import SUSPECT, Key, Row
from suite.runner.plan import Job
from suite.worker.pool import Pool, WorkerDiedError, WorkerTimeoutError

if TYPE_CHECKING:
    from suite.runner.compare import Options

CACHE_VARIABLES = (
    "XDG_CACHE_HOME",
    "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "JAX_COMPILATION_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
)
"""Where CUDA sources, Triton kernels, the driver's and XLA's programs are kept between processes."""
SLOWED = "clocks were lowered"
NOT_TIMED, NOT_COMPILED = "not timed", "not compiled again"


@dataclass(frozen=True)
class _Failure:
    """Why rows that were timed together have no times. `culprit` is the one that was running; `final` says that
    it was, beyond doubt; `alive` that the worker itself was well."""

    status: str
    reason: str
    culprit: str | None
    final: bool = False
    alive: bool = False


class Lane:
    """The lines of one device, checked and timed in its worker."""

    def __init__(
        self,
        pool: Pool,
        options: Options,
        kept: Mapping[Key, Row],
        visas: Mapping[str, Mapping[str, Any]],
        *,
        every_line: bool,
    ) -> None:
        self.pool = pool
        self.device = pool.device
        self.options = options
        self.kept = kept
        self.visas = {"visas": visas} if visas else {}
        self.every_line = every_line
        self.ceilings = measured_peaks.find(self.device.results_folder, self.device.name)

    def lines(self, job: Job) -> list[Implementation]:
        """The implementations to show: all, or only those that run natively here.

        A file from outside is always shown on the device of the run: it was asked for by name.
        """
        here = self.device == self.options.device
        return [
            line
            for line in job.implementations
            if self.every_line
            or (line.path is not None and here)
            or (line.obstacle(self.device) is None and line.adapter.mode(self.device) == "native")
        ]

    def run(
        self, job: Job, case: Case, tell: Callable[[int, str], None], keep: Callable[[list[Row]], None]
    ) -> list[Row]:
        """The rows of one case."""
        rows = []
        for position, implementation in enumerate(self.lines(job)):
            row = self.kept.get(self.row(case, implementation).key)
            if row is None:
                tell(position, f"checking {implementation.name}")
                row = self.check(case, implementation)
                keep([row])
            rows.append(row)
        timed = [row for row in rows if row.status == "ok" and row.mode == "native"]
        if self.options.timed and not all(map(_has_been_timed, timed)):
            tell(len(rows), f"timing {len(timed)} implementations")
            self.time(case, timed, partial(tell, len(rows)))
            if any(SLOWED in row.flags for row in timed):
                tell(len(rows), "timing again after a slowdown of the clocks")
                self.time(case, timed, partial(tell, len(rows)))
            arithmetic = {line.name: line.arithmetic for line in job.implementations}
            for row in timed:
                _rate(row, job.op, case, self.device, self.ceilings, arithmetic[row.implementation])
            keep(timed)
        if self.options.timed and self.options.compiles:
            for row in (row for row in timed if row.status == "ok" and not _has_been_compiled(row)):
                tell(len(rows), f"compiling {row.implementation} in fresh processes")
                self.compile(case, row)
                keep([row])
        return rows

    def row(self, case: Case, implementation: Implementation) -> Row:
        """What is known of a row before anything has run."""
        row = Row(case.operation, case.label, case.dtype, case.precision, implementation.name)
        row.mode = implementation.adapter.mode(self.device)
        row.device = str(self.device)
        row.vendor = implementation.vendor or ""
        row.seed = self.options.seed
        return row

    def check(self, case: Case, implementation: Implementation) -> Row:
        """Run one implementation in the worker and judge it.

        A failure in a worker that has run others may be of their making: a fresh one has the last word.
        """
        row = self.row(case, implementation)
        obstacle = implementation.obstacle(self.device, case)
        if obstacle is not None:
            row.status, row.reason = obstacle
            return row
        if not self.every_line and row.mode != "native":
            row.status, row.reason = "unsupported", f"{row.mode} here, and a sweep is for what runs natively"
            return row
        row.versions = implementation.versions()
        shared = self.pool.served_others(implementation.name)
        if not self.examine(case, row) and shared:
            self.pool.discard()
            row = self.row(case, implementation)
            row.versions = implementation.versions()
            self.examine(case, row)
        if row.status == "error":
            self.pool.discard()  # an error on the device can outlive the call that caused it
        return row

    def examine(self, case: Case, row: Row) -> bool:
        """Fill in `row`. False for a failure that somebody else may have caused."""
        try:
            _fill(row, self.pool.ask(self.check_request(case, row), timeout_s=self.options.timeout_s))
        except WorkerTimeoutError as error:
            row.status, row.reason = "timeout", str(error)
        except WorkerDiedError as error:
            row.status, row.reason = "error", str(error)
            return error.from_outside
        return row.status not in ("error", "wrong")

    def check_request(self, case: Case, row: Row) -> dict[str, Any]:
        name = row.implementation
        return {"do": "check", "case": case.to_json(), "implementation": name, "seed": row.seed, **self.visas}

    def time(self, case: Case, rows: Sequence[Row], tell: Callable[[str], None]) -> None:
        """Time the `rows` that are ok together. One that fails now becomes an error row; the others are timed again
        without it, and as if it had not been there.

        Whoever was running when a worker died is not always to blame, so it is timed alone, where it fails again or
        not. Where nobody was running, or the suspect is cleared, all are tried together once more, and then each alone.
        """
        noted = {row.implementation: row.reason for row in rows}
        rows = [row for row in rows if row.status == "ok"]
        failures = 0
        while rows:
            failure = self.take(case, rows, noted)
            if failure is None:
                return
            guilty = [row for row in rows if row.implementation == failure.culprit]
            if guilty and not failure.final and len(rows) > 1 and self.take(case, guilty) is None:
                guilty = []
            if not guilty:
                failures += 1
                if failures == 2 and not failure.alive and len(rows) > 1:
                    guilty = [row for row in rows if self.take(case, [row]) is not None]
                if failures > 1 and (not guilty or len(guilty) == len(rows)):
                    for row in rows:
                        row.reason = _joined(noted[row.implementation], f"{NOT_TIMED}: {failure.reason}")
                    return
            for row in guilty:
                row.status, row.reason = failure.status, f"while timed: {failure.reason}"
                rows.remove(row)
            if rows:
                tell(f"timing again, since the last attempt failed: {failure.reason}")

    def take(self, case: Case, rows: Sequence[Row], noted: Mapping[str, str] | None = None) -> _Failure | None:
        """One attempt at timing `rows` together, which fills them in if `noted` says what they already had to say."""
        request: dict[str, Any] = {
            "do": "time",
            "case": case.to_json(),
            "implementations": [row.implementation for row in rows],
            "seed": self.options.seed,
            "cache": self.options.cache,
            "transfers": self.options.transfers,
            **self.visas,
        }
        try:
            answer = self.pool.ask(request, timeout_s=self.options.timeout_s)
        except WorkerTimeoutError as error:
            return _Failure("timeout", str(error), error.last_started, final=True)
        except WorkerDiedError as error:
            return _Failure("error", str(error), error.last_started, final=error.from_outside)
        if "timings" not in answer:
            self.pool.discard()
            status = "wrong" if answer["status"] == "wrong" else "error"
            return _Failure(status, one_line(answer["reason"]), answer["failed"], alive=True)
        for row in rows if noted is not None else ():
            _fill(row, answer["timings"][row.implementation])
            row.reason = _joined((noted or {})[row.implementation], row.reason)
        return None

    def compile(self, case: Case, row: Row) -> None:
        """First calls in fresh processes: with empty caches, then with the caches that the first one left."""
        with tempfile.TemporaryDirectory(prefix="suite-caches-", ignore_cleanup_errors=True) as folder:
            caches = {name: str(Path(folder, name.lower())) for name in CACHE_VARIABLES}
            for column in ("compile_s", "compile_warm_s"):
                with Pool(self.device, caches, self.options.memory_bytes) as fresh:
                    try:
                        answer = fresh.ask(self.check_request(case, row), timeout_s=self.options.timeout_s)
                    except WorkerDiedError as error:
                        row.reason = _joined(row.reason, f"{NOT_COMPILED}: {error}")
                        return
                    setattr(row, column, answer.get("first_call_s"))
                    if answer.get("status") != "ok":
                        row.reason = _joined(row.reason, f"{NOT_COMPILED}: {one_line(answer.get('reason'))}")
                        return


def _fill(row: Row, values: dict[str, Any]) -> None:
    """Take over what a worker answered. Its texts come from kernels: they are made harmless here, once for all."""
    for name, value in values.items():
        if isinstance(value, float) and math.isnan(value):
            value = None
        if hasattr(row, name) and value is not None:
            setattr(row, name, one_line(value) if isinstance(value, str) else value)


def _joined(reason: str, more: str) -> str:
    return reason if more in reason else "; ".join(filter(None, [reason, more]))


def _has_been_timed(row: Row) -> bool:
    return row.device_us is not None or row.recorder != "" or NOT_TIMED in row.reason


def _has_been_compiled(row: Row) -> bool:
    return row.compile_warm_s is not None or NOT_COMPILED in row.reason


def _rate(
    row: Row, op: Operation, case: Case, device: Device, ceilings: Peaks | None, arithmetic: str | None = None
) -> None:
    """Rates, sums and the distance to the limit, from the operation's own bytes and flops.

    `arithmetic` is what a product is made of if not of the case's dtype: `6 x bfloat16` is limited by a sixth of that
    rate.
    """
    if row.latency_us is not None and row.to_device_us is not None and row.to_host_us is not None:
        row.program_us = row.to_device_us + row.latency_us + row.to_host_us
    if row.latency_us is not None and row.to_device_pinned_us is not None and row.to_host_pinned_us is not None:
        row.program_pinned_us = row.to_device_pinned_us + row.latency_us + row.to_host_pinned_us
    if row.joules:
        row.gflop_per_joule = op.flops(case) / row.joules / 1e9
    if not row.device_us:
        return
    row.gb_per_s = op.bytes(case) / row.device_us / 1e3
    row.tflops = op.flops(case) / row.device_us / 1e6
    times, dtype = (arithmetic or f"1 x {case.dtype}").split(" x ")
    flops = int(times) * op.flops(case)
    limit = hardware.limit(device.name, op.bytes(case), flops, dtype, case.precision, ceilings)
    if limit is not None:
        row.of_limit, row.limit = limit[0] / row.device_us, limit[1]
        if row.of_limit > 1.0 and row.cache == "cold" and row.limit.endswith("(datasheet)"):
            row.flags = "; ".join(filter(None, [f"{SUSPECT}: faster than the device's {limit[1]} allows", row.flags]))
