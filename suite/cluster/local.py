"""compare() for several devices of this host: a process for each, which takes one case at a time."""

from __future__ import annotations

import platform
import select
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, TracebackType

from suite import custom, hardware
from suite.cluster.device_process import DeviceProcess
from suite.cluster.devices import environments
from suite.cluster.ledger import Ledger
from suite.cluster.messages import Doing, Finished, Own, Setup, Stored
from suite.core.errors import WorkerError
from suite.problem.operation import Operation
from suite.processes.child import KILL_S, SHORT_KILL_S, TICK_S
from suite.results.row import Key, Row
from suite.runner import compare as one_device
from suite.runner.build_ahead import build_ahead
from suite.runner.observer import Observer, Step
from suite.runner.options import Options
from suite.runner.plan import Job
from suite.worker.pool import Pool, WorkerDiedError
from suite.worker.process import MEMORY_SHARE

MAX_DEATHS = 3
"""Processes of a device that may end without a message, one after the other, before it gets no more."""


def compare(
    jobs: Sequence[Job],
    options: Options,
    observer: Observer | None = None,
    finished: Mapping[Key, Row] = MappingProxyType({}),
) -> list[Row]:
    """Check and time every implementation of `jobs`, a case on one of `options.devices` at a time.

    Operations over several ranks, which need the GPUs together, come last. On a CPU they come first, beside the others:
    these use the cores while ranks wait for each other. The rows are in the order of the plan.
    """
    observer = observer or Observer()
    alone = [job for job in jobs if not job.op.over_ranks]
    together = [job for job in jobs if job.op.over_ranks]
    if alone and not finished:
        with Pool(options.device, memory_bytes=options.memory_bytes, times=False) as pool:
            build_ahead(alone, pool, options, lambda doing: observer.step(Step("all", "", doing, 0, 0)))
    shared, together = ([*together, *alone], []) if options.device.type == "cpu" else (alone, together)
    ledger = Ledger(shared, options, observer, finished, options.devices)
    with DeviceProcesses(setup_of(shared, options), options.devices) as processes:
        processes.run(ledger)
    after = _After(observer, len(ledger.rows))
    rows = [*ledger.rows, *(one_device.compare(together, options, after, finished) if together else ())]
    order = {job.op.name: number for number, job in enumerate(jobs)}
    return sorted(rows, key=lambda row: order[row.operation])


class _After(Observer):
    """Passes on the rows of a later part of a run. Its counts include the `before` rows of the earlier part."""

    def __init__(self, observer: Observer, before: int) -> None:
        self._observer, self._before = observer, before

    def step(self, step: Step) -> None:
        self._observer.step(replace(step, done=step.done + self._before, total=step.total + self._before))

    def store(self, operation: Operation, rows: Sequence[Row]) -> None:
        self._observer.store(operation, rows)

    def case_finished(self, operation: Operation, rows: Sequence[Row]) -> None:
        self._observer.case_finished(operation, rows)


def setup_of(jobs: Sequence[Job], options: Options) -> Setup:
    """The settings of the processes of a run, which share the free memory of the host."""
    free = options.memory_bytes or hardware.free_host_bytes()
    share = None if free is None else int(MEMORY_SHARE * free / options.devices)
    source = next((job.op.source for job in jobs if job.op.source is not None), None)
    own = None if source is None else Own(source, custom.find(source).about)
    return Setup(replace(options, memory_bytes=share), own)


class DeviceProcesses:
    """A process for each device. One that dies is replaced, and its task runs again."""

    def __init__(self, setup: Setup, devices: int) -> None:
        self._setup = setup
        self._environments = environments(setup.options.device, devices)
        self._processes: dict[int, DeviceProcess] = {}
        self._deaths = [0] * devices

    def __enter__(self) -> DeviceProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = error is not None and not isinstance(error, Exception)
        for process in self._processes.values():
            process.kill(0.0)  # at once for all: a process on a GPU takes seconds to end
        for process in self._processes.values():
            process.close(SHORT_KILL_S if interrupted else KILL_S)

    def run(self, ledger: Ledger) -> None:
        """Run all tasks of `ledger`. Raises `WorkerError` if no process is left."""
        while not ledger.is_complete(self._left):
            self._give(ledger)
            busy = [(index, process) for index, process in self._processes.items() if process.task is not None]
            watched = [each for _, process in busy for each in process.descriptors]
            ready = set(select.select(watched, [], [], TICK_S)[0])
            for index, process in busy:
                try:
                    self._hear(process, ready, ledger, index)
                except (WorkerDiedError, ValueError) as error:
                    self._lose(index, process, ledger, str(error))

    @property
    def _left(self) -> set[str]:
        """The names of the devices that may still get tasks."""
        return {str(index) for index, deaths in enumerate(self._deaths) if deaths < MAX_DEATHS}

    def _give(self, ledger: Ledger) -> None:
        """Give each idle process a task, and start the processes that are missing."""
        for index, environment in enumerate(self._environments):
            process = self._processes.get(index)
            if self._deaths[index] >= MAX_DEATHS or (process is not None and process.task is not None):
                continue
            if (task := ledger.take(process.groups if process is not None else set(), str(index))) is None:
                continue
            if process is None:
                process = self._processes[index] = DeviceProcess(self._setup, environment)
            process.begin(task)

    def _hear(self, process: DeviceProcess, ready: set[int], ledger: Ledger, index: int) -> None:
        for message in process.messages(ready):
            self._deaths[index] = 0
            match message:
                case Doing(number, position, doing):
                    ledger.step(number, position, doing)
                case Stored(number, rows):
                    ledger.store(number, rows)
                case Finished(number, rows):
                    process.task = None
                    ledger.finish(number, rows)

    def _lose(self, index: int, process: DeviceProcess, ledger: Ledger, how: str) -> None:
        assert process.task is not None
        self._processes.pop(index).close()
        self._deaths[index] += 1
        gpu = self._environments[index].get("CUDA_VISIBLE_DEVICES", "")
        where = f"{platform.node()} {gpu}" if self._setup.options.device.type == "cuda" else platform.node()
        ledger.lose(process.task.number, where, how)
        if not self._left and not ledger.is_complete(self._left):
            raise WorkerError(f"every process that takes cases has ended: {how}")
