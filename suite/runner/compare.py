"""compare() runs every chosen case on every chosen device, one case after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType

from suite.problem.case import Case
from suite.ranks.devices import device_of_ranks
from suite.ranks.pool import RanksPool
from suite.results.row import Key, Row
from suite.runner.build_ahead import build_ahead
from suite.runner.device_run import DeviceRun
from suite.runner.inspection import Inspection
from suite.runner.observer import Observer, Step
from suite.runner.options import Options
from suite.runner.plan import Job
from suite.worker.pool import Pool


def compare(
    jobs: Sequence[Job],
    options: Options,
    observer: Observer | None = None,
    finished: Mapping[Key, Row] = MappingProxyType({}),
) -> list[Row]:
    """Check and time every implementation of `jobs` on every case. Returns all rows, in the order of the plan.

    `finished` holds the rows of an interrupted run. They are not run again. The observer is not called for a case whose
    rows are all finished. If `options.repeat` is above 1, all cases are timed once, then all are timed again in fresh
    workers, until each has been timed that many times.
    """
    observer = observer or Observer()
    rows: list[Row] = []
    with ExitStack() as stack:
        devices = [(options.device, not options.native_only)]
        devices += [(options.host, False)] if options.host is not None else []
        runs = [
            DeviceRun(
                stack.enter_context(Pool(device, memory_bytes=options.memory_bytes, times=options.timed)),
                options,
                finished,
                interpreted_too=interpreted_too,
            )
            for device, interpreted_too in devices
        ]
        cases: list[tuple[Job, Case, _Progress, list[list[Row]]]] = []
        together = _runs_over_ranks(jobs, options, finished, stack)
        inspection = Inspection(options)

        def runs_of(job: Job, case: Case) -> list[DeviceRun]:
            return [together[case.ranks]] if job.op.over_ranks else runs

        total = sum(len(run.implementations(job)) for job in jobs for case in job.cases for run in runs_of(job, case))
        if not finished:
            alone = [job for job in jobs if not job.op.over_ranks]
            build_ahead(alone, runs[0].pool, options, lambda doing: observer.step(Step("all", "", doing, 0, total)))
        for job in jobs:
            for case in job.cases:
                progress = _Progress(observer, job, case, len(rows), total)
                cases.append((job, case, progress, [progress.run(run) for run in runs_of(job, case)]))
                case_rows = [row for run_rows in cases[-1][-1] for row in run_rows]
                if not job.op.over_ranks:
                    inspection.inspect(job, case, case_rows, progress)
                rows += case_rows
                if progress.anything_new and options.repeat == 1:
                    observer.case_finished(job.op, case_rows)
        for number in range(2, options.repeat + 1):
            for run in (*runs, *together.values()):
                run.pool.renew()
            for job, case, progress, rows_by_run in cases:
                for run, run_rows in zip(runs_of(job, case), rows_by_run, strict=True):
                    run.repeat(job, case, run_rows, progress)
                if progress.anything_new and number == options.repeat:
                    observer.case_finished(job.op, [row for run_rows in rows_by_run for row in run_rows])
    return rows


def _runs_over_ranks(
    jobs: Sequence[Job], options: Options, finished: Mapping[Key, Row], stack: ExitStack
) -> dict[int, DeviceRun]:
    """The run of each number of ranks that the cases have."""
    counts = {case.ranks for job in jobs for case in job.cases if job.op.over_ranks}
    return {ranks: run_over_ranks(ranks, options, finished, stack) for ranks in counts}


def run_over_ranks(ranks: int, options: Options, finished: Mapping[Key, Row], stack: ExitStack) -> DeviceRun:
    """The run of cases over `ranks` processes, which end with `stack`."""
    pool = stack.enter_context(RanksPool(device_of_ranks(options.device, ranks), ranks, options.memory_bytes))
    return DeviceRun(pool, options, finished, interpreted_too=not options.native_only)


class _Progress:
    """Passes on the progress of a `DeviceRun` on one case to the observer of the whole run."""

    def __init__(self, observer: Observer, job: Job, case: Case, done: int, total: int) -> None:
        self.observer, self.job, self.case, self.done, self.total = observer, job, case, done, total
        self.anything_new = False

    def run(self, run: DeviceRun) -> list[Row]:
        """Run the case on one device, and return its rows."""
        rows = run.run(self.job, self.case, self)
        self.done += len(rows)
        return rows

    def step(self, position: int, doing: str) -> None:
        """Report the next step. `position` is the number of finished rows of this device and case."""
        name = f"{self.case.label} {self.case.dtype} {self.case.precision}"
        done = min(self.done + position, self.total)  # repeated rows are already counted as finished
        self.observer.step(Step(self.case.operation, name, doing, done, self.total))

    def store(self, rows: Sequence[Row]) -> None:
        self.anything_new = True
        self.observer.store(self.job.op, rows)
