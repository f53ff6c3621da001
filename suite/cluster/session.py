"""Runs tasks on the device of this process, the first that it sees, with the workers of an ordinary run."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType

from suite import custom, hardware, ops
from suite.cluster.messages import Doing, Finished, Setup, Stored, Task
from suite.core.errors import UsageError
from suite.external.implementation import ExternalImplementation, from_files
from suite.hardware.device import resolve
from suite.hardware.environment import device_facts
from suite.implementations import lookup
from suite.implementations.identity import Reference
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.results.row import Row
from suite.runner.compare import run_over_ranks
from suite.runner.device_run import DeviceRun
from suite.runner.inspection import Inspection
from suite.runner.plan import Job
from suite.worker.pool import Pool

Send = Callable[[Doing | Stored], None]


class Session:
    """One device with its workers, for the tasks of one run. Raises `UsageError` for a device of another model."""

    def __init__(self, setup: Setup) -> None:
        wanted = setup.options.device
        device = resolve(wanted.type)
        if device.name != wanted.name:
            raise UsageError(f"{platform.node()} has {device.name}, but the run is for {wanted.name}")
        if setup.own is not None:
            custom.from_description(setup.own.source, setup.own.about)
        self.options = replace(setup.options, device=device, host=None, devices=1)
        self._stack = ExitStack()
        self._pool = Pool(device, memory_bytes=self.options.memory_bytes, times=self.options.timed)
        self._stack.push(self._pool)
        self._over_ranks: dict[int, DeviceRun] = {}
        """The run of each number of ranks."""
        self._run = DeviceRun(self._pool, self.options, {}, interpreted_too=not self.options.native_only)
        self._inspection = Inspection(self.options)
        facts = device_facts(device.type)
        gpu = hardware.uuid() if device.type == "cuda" else ""
        self._columns = {"host": platform.node(), "gpu": gpu, "driver": facts.get("driver") or ""}

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(self, task: Task, send: Send) -> Finished:
        """All rows of a task. `send` is called with each step, and with rows once they are known."""
        op = ops.operation(task.case)
        chosen = tuple(_implementation(task.case, each) for each in task.implementations)
        job, case = Job(op, (task.case, task.largest), chosen), task.case
        progress = _Progress(task.number, send, self._columns)
        if task.again:
            return Finished(task.number, tuple(self._run.time_again(job, case, task.finished, progress)))
        run = self._run_of(job, case)
        run.finished = {row.key: row for row in task.finished}
        rows = run.run(job, case, progress)
        if op.over_ranks:
            return Finished(task.number, tuple(rows))
        self._inspection.inspect(job, case, rows, progress)
        for _ in range(1, self.options.repeat):
            self._pool.renew()
            self._run.repeat(job, case, rows, progress)
        return Finished(task.number, tuple(rows))

    def _run_of(self, job: Job, case: Case) -> DeviceRun:
        """The run of a case. Ranks end when a case without them follows."""
        if job.op.over_ranks:
            if case.ranks not in self._over_ranks:
                self._over_ranks[case.ranks] = run_over_ranks(case.ranks, self.options, {}, self._stack)
            return self._over_ranks[case.ranks]
        for run in self._over_ranks.values():
            run.pool.discard()
        return self._run


@dataclass(frozen=True)
class _Progress:
    """Sends the progress of a `DeviceRun` on one case, and fills in the columns that name the device."""

    number: int
    send: Send
    columns: dict[str, str]

    def step(self, position: int, doing: str) -> None:
        self.send(Doing(self.number, position, doing))

    def store(self, rows: Sequence[Row]) -> None:
        for row in rows:
            row.fill(self.columns)
        self.send(Stored(self.number, tuple(rows)))


def _implementation(case: Case, reference: Reference) -> Implementation:
    """The implementation that a reference names. Raises `UsageError` for another version of a user's file."""
    if isinstance(reference, str):
        return lookup.find(case, reference)
    op = ops.operation(case)
    (found,) = from_files([ExternalImplementation.from_reference(reference, case).path], [op])[op.name]
    if found.reference != reference:
        raise UsageError(f"{reference.path} on {platform.node()} is not the version that the run began with")
    return found
