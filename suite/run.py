"""compare(): for each case check every implementation, then time together those that agree."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from suite import hardware
from suite.backends import Implementation
from suite.device import Device
from suite.hardware import Peaks, measured
from suite.isolate import Pool, WorkerDiedError, WorkerTimeoutError
from suite.op import Case, Op
from suite.select import Job
from suite.table import SUSPECT, Row

FIRST_CALL_TIMEOUT_S = 120.0
"""Longest silence of a worker: one implementation's build, compilation, tuning and check."""
CACHE_VARIABLES = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "JAX_COMPILATION_CACHE_DIR")
"""Where CUDA sources, Triton kernels, the driver's and XLA's programs are kept between processes."""
SLOWED = "clocks were lowered"


@dataclass(frozen=True)
class Options:
    """How to run, as opposed to what.

    `native_only` leaves out lines that are interpreted or emulated here; `host` is a CPU whose native lines join those
    of `device` in the same table; `transfers` adds what it costs to bring the inputs to the device and the result back;
    `compiles` adds first calls in fresh processes.
    """

    device: Device
    cache: str = "cold"
    timed: bool = True
    seed: int = 0
    timeout_s: float = FIRST_CALL_TIMEOUT_S
    native_only: bool = False
    host: Device | None = None
    transfers: bool = False
    compiles: bool = False


@dataclass(frozen=True)
class Step:
    """Told to the caller before something that takes a while."""

    operation: str
    case: str
    doing: str
    done: int
    total: int


def compare(
    jobs: Sequence[Job],
    options: Options,
    *,
    on_rows: Callable[[Op, list[Row]], None] = lambda op, rows: None,
    on_step: Callable[[Step], None] = lambda step: None,
) -> list[Row]:
    """Every row of the chosen jobs. `on_rows` gets the rows of a case as soon as it is finished."""
    rows: list[Row] = []
    with ExitStack() as stack:
        lanes = [_Lane(stack.enter_context(Pool(options.device)), options, every_line=not options.native_only)]
        if options.host is not None:
            lanes.append(_Lane(stack.enter_context(Pool(options.host)), options, every_line=False))
        total = sum(len(job.cases) * len(lane.lines(job)) for job in jobs for lane in lanes)
        for job in jobs:
            for case in job.cases:
                case_rows: list[Row] = []
                for lane in lanes:
                    tell = partial(_tell, on_step, case, len(rows) + len(case_rows), total)
                    case_rows += lane.run(job, case, tell)
                rows += case_rows
                on_rows(job.op, case_rows)
    return rows


def _tell(on_step: Callable[[Step], None], case: Case, before: int, total: int, position: int, doing: str) -> None:
    on_step(Step(case.operation, f"{case.label} {case.dtype} {case.precision}", doing, before + position, total))


class _Lane:
    """The lines of one device, checked and timed in its worker."""

    def __init__(self, pool: Pool, options: Options, *, every_line: bool) -> None:
        self.pool = pool
        self.device = pool.device
        self.options = options
        self.every_line = every_line
        self.ceilings = measured.find(self.device.results_folder, self.device.name)

    def lines(self, job: Job) -> list[Implementation]:
        """The implementations to show: all, or only those that run natively here."""
        return [
            line
            for line in job.implementations
            if self.every_line or (line.obstacle(self.device) is None and line.backend.mode(self.device) == "native")
        ]

    def run(self, job: Job, case: Case, tell: Callable[[int, str], None]) -> list[Row]:
        """The rows of one case."""
        rows = []
        for position, implementation in enumerate(self.lines(job)):
            tell(position, f"checking {implementation.name}")
            rows.append(self.check(case, implementation))
        if self.options.timed:
            timed = [row for row in rows if row.status == "ok" and row.mode == "native"]
            tell(len(rows), f"timing {len(timed)} implementations")
            self.time(case, timed)
            if any(SLOWED in row.flags for row in timed):
                tell(len(rows), "timing again after a slowdown of the clocks")
                self.time(case, timed)
            for row in timed:
                _rate(row, job.op, case, self.device, self.ceilings)
                if self.options.compiles:
                    tell(len(rows), f"compiling {row.implementation} in fresh processes")
                    self.compile(case, row)
        return rows

    def check(self, case: Case, implementation: Implementation) -> Row:
        """Run one implementation in the worker and judge it."""
        row = Row(case.operation, case.label, case.dtype, case.precision, implementation.name)
        row.mode = implementation.backend.mode(self.device)
        row.device = str(self.device)
        row.vendor = implementation.vendor or ""
        row.seed = self.options.seed
        obstacle = implementation.obstacle(self.device)
        if obstacle is not None:
            row.status, row.reason = obstacle
            return row
        row.versions = implementation.backend.versions()
        try:
            _fill(row, self.pool.ask(_check_request(case, row), timeout_s=self.options.timeout_s))
        except WorkerTimeoutError as error:
            row.status, row.reason = "timeout", str(error)
        except WorkerDiedError as error:
            row.status, row.reason = "error", str(error)
        if row.status == "error":
            self.pool.discard()  # an error on the device can outlive the call that caused it
        return row

    def time(self, case: Case, rows: list[Row]) -> None:
        """Time `rows` together. One that fails now becomes an error row, and the others are timed without it."""
        while rows:
            request: dict[str, Any] = {
                "do": "time",
                "case": case.to_json(),
                "implementations": [row.implementation for row in rows],
                "seed": self.options.seed,
                "cache": self.options.cache,
                "transfers": self.options.transfers,
            }
            try:
                answer = self.pool.ask(request, timeout_s=self.options.timeout_s)
            except WorkerDiedError as error:
                status = "timeout" if isinstance(error, WorkerTimeoutError) else "error"
                for row in [row for row in rows if row.implementation == error.last_started] or list(rows):
                    row.status, row.reason = status, f"while timed: {error}"
                    rows.remove(row)
                continue
            if "timings" not in answer:
                self.pool.discard()
                failed = [row for row in rows if row.implementation == answer["failed"]]
                for row in failed:
                    row.status, row.reason = "error", f"while timed: {answer['reason']}"
                    rows.remove(row)
                if failed:
                    continue
                for row in rows:
                    row.reason = f"not timed: {answer['reason']}"
                return
            for row in rows:
                _fill(row, answer["timings"][row.implementation])
            return

    def compile(self, case: Case, row: Row) -> None:
        """First calls in fresh processes: with empty caches, then with the caches that the first one left."""
        with tempfile.TemporaryDirectory(prefix="suite-caches-") as folder:
            caches = {name: str(Path(folder, name.lower())) for name in CACHE_VARIABLES}
            for column in ("compile_s", "compile_warm_s"):
                with Pool(self.device, caches) as fresh:
                    try:
                        answer = fresh.ask(_check_request(case, row), timeout_s=self.options.timeout_s)
                    except WorkerDiedError as error:
                        row.reason = f"not compiled again: {error}"
                        return
                    setattr(row, column, answer.get("first_call_s"))


def _check_request(case: Case, row: Row) -> dict[str, Any]:
    return {"do": "check", "case": case.to_json(), "implementation": row.implementation, "seed": row.seed}


def _fill(row: Row, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if hasattr(row, name) and value is not None:
            setattr(row, name, value)


def _rate(row: Row, op: Op, case: Case, device: Device, ceilings: Peaks | None) -> None:
    """Rates, sums and the distance to the limit, from the operation's own bytes and flops."""
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
    limit = hardware.limit(device.name, op.bytes(case), op.flops(case), case.dtype, case.precision, ceilings)
    if limit is not None:
        row.of_limit, row.limit = limit[0] / row.device_us, limit[1]
        if row.of_limit > 1.0 and row.cache == "cold" and row.limit.endswith("(datasheet)"):
            row.flags = "; ".join(filter(None, [f"{SUSPECT}: faster than the device's {limit[1]} allows", row.flags]))
