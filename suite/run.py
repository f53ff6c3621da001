"""compare(): for each case check every implementation, then time together those that agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from suite import hardware
from suite.backends import Implementation
from suite.device import Device
from suite.isolate import Pool, WorkerDiedError, WorkerTimeoutError
from suite.op import Case, Op
from suite.select import Job
from suite.table import Row

FIRST_CALL_TIMEOUT_S = 120.0
"""Longest silence of a worker: one implementation's build, compilation, tuning and check."""


@dataclass(frozen=True)
class Options:
    """How to run, as opposed to what."""

    device: Device
    cache: str = "cold"
    timed: bool = True
    seed: int = 0
    timeout_s: float = FIRST_CALL_TIMEOUT_S


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
    total = sum(len(job.cases) * len(job.implementations) for job in jobs)
    with Pool(options.device) as pool:
        for job in jobs:
            for case in job.cases:
                case_rows: list[Row] = []
                tell = partial(_tell, on_step, case, len(rows), total)
                for position, implementation in enumerate(job.implementations):
                    tell(position, f"checking {implementation.name}")
                    case_rows.append(_checked(pool, case, implementation, options))
                if options.timed:
                    timed = [row for row in case_rows if row.status == "ok" and row.mode == "native"]
                    tell(len(case_rows), f"timing {len(timed)} implementations")
                    _time(pool, case, timed, options)
                    for row in timed:
                        _rate(row, job.op, case, options.device)
                rows += case_rows
                on_rows(job.op, case_rows)
    return rows


def _tell(on_step: Callable[[Step], None], case: Case, before: int, total: int, position: int, doing: str) -> None:
    on_step(Step(case.operation, f"{case.label} {case.dtype} {case.precision}", doing, before + position, total))


def _checked(pool: Pool, case: Case, implementation: Implementation, options: Options) -> Row:
    """Run one implementation in the worker and judge it."""
    row = Row(case.operation, case.label, case.dtype, case.precision, implementation.name)
    row.mode = implementation.backend.mode(options.device)
    row.vendor = implementation.vendor or ""
    row.seed = options.seed
    obstacle = implementation.obstacle(options.device)
    if obstacle is not None:
        row.status, row.reason = obstacle
        return row
    row.versions = implementation.backend.versions()
    request = {"do": "check", "case": case.to_json(), "implementation": implementation.name, "seed": options.seed}
    try:
        _fill(row, pool.ask(request, timeout_s=options.timeout_s))
    except WorkerTimeoutError as error:
        row.status, row.reason = "timeout", str(error)
    except WorkerDiedError as error:
        row.status, row.reason = "error", str(error)
    if row.status == "error":
        pool.discard()  # an error on the device can outlive the call that caused it
    return row


def _time(pool: Pool, case: Case, rows: list[Row], options: Options) -> None:
    """Time `rows` together. One that fails now becomes an error row, and the others are timed without it."""
    while rows:
        request: dict[str, Any] = {
            "do": "time",
            "case": case.to_json(),
            "implementations": [row.implementation for row in rows],
            "seed": options.seed,
            "cache": options.cache,
        }
        try:
            answer = pool.ask(request, timeout_s=options.timeout_s)
        except WorkerDiedError as error:
            status = "timeout" if isinstance(error, WorkerTimeoutError) else "error"
            for row in [row for row in rows if row.implementation == error.last_started] or list(rows):
                row.status, row.reason = status, f"while timed: {error}"
                rows.remove(row)
            continue
        if "timings" not in answer:
            pool.discard()
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


def _fill(row: Row, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if hasattr(row, name) and value is not None:
            setattr(row, name, value)


def _rate(row: Row, op: Op, case: Case, device: Device) -> None:
    """Rates and the distance to the limit, from the operation's own bytes and flops."""
    if not row.device_us:
        return
    row.gb_per_s = op.bytes(case) / row.device_us / 1e3
    row.tflops = op.flops(case) / row.device_us / 1e6
    limit = hardware.limit_us(device.name, op.bytes(case), op.flops(case), case.dtype, case.precision)
    if limit is not None:
        row.of_limit, row.limit = limit[0] / row.device_us, f"{limit[1]} (datasheet)"
