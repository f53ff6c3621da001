"""compare(): for each case check every implementation, then time together those that agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from suite.hardware.device import Device
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.results.row import Key, Row
from suite.runner.device_run import Lane
from suite.runner.plan import Job
from suite.worker.limits import FIRST_CALL_S
from suite.worker.pool import Pool


@dataclass(frozen=True)
class Options:
    """How to run, as opposed to what.

    `native_only` leaves out lines that are interpreted or emulated here; `host` is a CPU whose native lines join those
    of `device` in the same table; `transfers` adds what it costs to bring the inputs to the device and the result back;
    `compiles` adds first calls in fresh processes; `memory_bytes` is the host memory that a worker may take, most of
    what is free if None.
    """

    device: Device
    cache: str = "cold"
    timed: bool = True
    seed: int = 0
    timeout_s: float = FIRST_CALL_S
    native_only: bool = False
    host: Device | None = None
    transfers: bool = False
    compiles: bool = False
    memory_bytes: int | None = None


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
    kept: Mapping[Key, Row] = MappingProxyType({}),
    keep: Callable[[Operation, list[Row]], None] = lambda op, rows: None,
    on_rows: Callable[[Operation, list[Row]], None] = lambda op, rows: None,
    on_step: Callable[[Step], None] = lambda step: None,
) -> list[Row]:
    """Every row of the chosen jobs.

    `keep` gets each row once it is checked, and again with its times; `on_rows` gets the rows of a case as soon as it
    is finished. What `kept` has, from a run that was interrupted, is not done again, and no case of such rows alone is
    told.
    """
    rows: list[Row] = []
    references = {each.name: each.reference for job in jobs for each in job.implementations if each.is_external}
    with ExitStack() as stack:

        def lane(device: Device, every_line: bool) -> Lane:
            pool = stack.enter_context(Pool(device, memory_bytes=options.memory_bytes))
            return Lane(pool, options, kept, references, every_line=every_line)

        lanes = [lane(options.device, not options.native_only)]
        if options.host is not None:
            lanes.append(lane(options.host, False))
        total = sum(len(job.cases) * len(each.lines(job)) for job in jobs for each in lanes)
        for job in jobs:
            for case in job.cases:
                case_rows: list[Row] = []
                new: list[Row] = []

                def keep_new(rows: list[Row], op: Operation = job.op, new: list[Row] = new) -> None:
                    new.extend(rows)
                    keep(op, rows)

                for each in lanes:
                    tell = partial(_tell, on_step, case, len(rows) + len(case_rows), total)
                    case_rows += each.run(job, case, tell, keep_new)
                rows += case_rows
                if new:
                    on_rows(job.op, case_rows)
    return rows


def _tell(on_step: Callable[[Step], None], case: Case, before: int, total: int, position: int, doing: str) -> None:
    on_step(Step(case.operation, f"{case.label} {case.dtype} {case.precision}", doing, before + position, total))
