"""Runs the implementations of one device on one case: each is checked, then those that agree are timed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from suite import ops
from suite.core.text import joined_reasons, one_line
from suite.implementations.implementation import Implementation
from suite.problem.accepted_cases import added_operands
from suite.problem.case import Case
from suite.processes.own_limits import OwnLimits
from suite.results.accuracy import set_error_vs_vendor
from suite.results.noise import mark_noisy, reference_of
from suite.results.own_vendor import rank_against_own
from suite.results.peers import set_vs_peer
from suite.results.rates import passes_ceiling, rates
from suite.results.repeats import merged, without_times
from suite.results.row import Attempt, Key, Mode, Row, Status
from suite.runner import attribution, compile_times, sustain
from suite.runner.attribution import Failure
from suite.runner.ceilings import Ceilings
from suite.runner.options import Options
from suite.runner.plan import Job
from suite.worker.pool import Pool, WorkerDiedError, WorkerTimeoutError
from suite.worker.protocol import (
    CheckReply,
    CheckRequest,
    ExternalReference,
    Failed,
    ProbeRequest,
    Reference,
    TimeExternalRequest,
    TimeRequest,
    TimingColumns,
    TimingFailed,
)


class CaseProgress(Protocol):
    """Receives the progress of one case on one device."""

    def step(self, position: int, doing: str) -> None:
        """Called before a step that takes a while. `position` rows are finished."""

    def store(self, rows: Sequence[Row]) -> None:
        """Called with the rows that are new or have changed."""


class DeviceRun:
    """Checks and times implementations in the workers of one device.

    `finished` holds rows of an interrupted run, which are not run again. Without `interpreted_too`, only the
    implementations that run natively on this device have rows.
    """

    def __init__(self, pool: Pool, options: Options, finished: Mapping[Key, Row], *, interpreted_too: bool) -> None:
        self.pool = pool
        self.device = pool.device
        self.options = options
        self.finished = finished
        self.interpreted_too = interpreted_too
        self._probed: dict[tuple[str | int, ...], Mapping[str, object]] = {}
        """Columns with the results of the telling cases, by operation, dtype, precision and implementation."""
        self.ceilings = Ceilings(pool)
        self._limits = OwnLimits()
        self._runs: dict[Key, list[Row]] = {}
        """For `--repeat`: copies of each row, one for each run that measured it."""

    def implementations(self, job: Job) -> list[Implementation]:
        """The implementations of `job` that have a row on this device.

        A user's file always has one on the device of the run, because it was asked for by name.
        """
        return [each for each in job.implementations if self.interpreted_too or self._has_row(each)]

    def _has_row(self, implementation: Implementation) -> bool:
        if implementation.is_external:
            return self.device == self.options.device
        return implementation.obstacle(self.device) is None and implementation.adapter.mode(self.device) == Mode.NATIVE

    def run(self, job: Job, case: Case, progress: CaseProgress) -> list[Row]:
        """The rows of one case, in the order of the job's implementations."""
        rows = self._check_all(job, case, progress)
        set_error_vs_vendor(rows)
        if any(row.error_vs_vendor is not None for row in rows):
            progress.store(rows)
        if self.options.timed:
            agreeing = [row for row in rows if row.status is Status.OK and row.execution is Mode.NATIVE]
            self._time_all(job, case, agreeing, len(rows), progress)
            if not job.op.over_ranks:
                self._sustain_all(job, case, agreeing, len(rows), progress)
            if self.options.compiles and not job.op.over_ranks:
                self._compile_all(job, case, agreeing, len(rows), progress)
        return rows

    def repeat(self, job: Job, case: Case, rows: Sequence[Row], progress: CaseProgress) -> None:
        """Time the rows of one case once more, and merge the times with those of the earlier runs."""
        timed = [row for row in rows if row.status is Status.OK and row.timed is Attempt.DONE]
        if all(row.runs >= self.options.repeat for row in timed):
            return
        for row in timed:
            self._runs.setdefault(row.key, [replace(row)])
        again = [without_times(row) for row in timed]
        progress.step(len(rows), f"timing {len(again)} implementations, run {len(self._runs[timed[0].key]) + 1}")
        self._time(job, case, again, len(rows), progress)
        for row, latest in zip(timed, again, strict=True):
            if latest.status is not Status.OK or latest.timed is not Attempt.DONE:
                row.status, row.reason, row.timed = latest.status, latest.reason, latest.timed
                row.killed_from_outside = latest.killed_from_outside
                continue
            self._runs[row.key].append(latest)
            row.fill(merged(self._runs[row.key]))
        self._complete(job, case, timed, progress)

    def time_again(self, job: Job, case: Case, rows: Sequence[Row], progress: CaseProgress) -> list[Row]:
        """Time the rows that another device of the model has timed, and return copies with the times of this one."""
        again = [without_times(row) for row in rows if row.status is Status.OK and row.timed is Attempt.DONE]
        progress.step(0, f"timing {len(again)} implementations on a further device")
        self._time(job, case, again, 0, progress)
        progress.store(again)
        return again

    # ------------------------------------------------------------------ check

    def _check_all(self, job: Job, case: Case, progress: CaseProgress) -> list[Row]:
        rows = []
        for position, implementation in enumerate(self.implementations(job)):
            row = self.finished.get(self.new_row(case, implementation).key)
            if row is not None and 1 < row.runs < self.options.repeat:
                row.runs, row.timed = 1, Attempt.NOT_TRIED  # the single runs are not kept
            if row is None:
                progress.step(position, f"checking {implementation.name}")
                row = self._check(case, implementation)
                row.reason = joined_reasons(row.reason, self._limits.restore())
                progress.store([row])
            rows.append(row)
        return rows

    def new_row(self, case: Case, implementation: Implementation) -> Row:
        """A row with the columns that are known before anything has run."""
        row = Row(case.operation, case.label, case.dtype, case.precision, implementation.name)
        row.execution = Mode(implementation.adapter.mode(self.device))
        row.device, row.vendor, row.peer = str(self.device), implementation.vendor or "", implementation.peer or ""
        op = ops.operation(case)
        row.seed, row.bytes, row.flops = self.options.seed, op.bytes(case), op.flops(case)
        row.ranks = case.ranks if op.over_ranks else None
        return row

    def _check(self, case: Case, implementation: Implementation) -> Row:
        """Run one implementation in the worker and judge its results.

        A worker that ran other implementations may have been damaged by them. A failure there is therefore tried again
        in a fresh worker, whose result counts. A user's file runs in a process of its own, which the worker replaces.
        """
        row = self.new_row(case, implementation)
        obstacle = implementation.obstacle(self.device, case)
        if obstacle is None and not self.interpreted_too and row.execution is not Mode.NATIVE:
            obstacle = Status.UNSUPPORTED, f"{row.execution} here, and a sweep runs native implementations only"
        if obstacle is not None:
            row.status, row.reason = Status(obstacle[0]), obstacle[1]
            return row
        shared = not implementation.is_external and self.pool.has_run_others(implementation.name)
        row, conclusive = self._check_once(case, implementation)
        if not conclusive and shared:
            self.pool.discard()
            row, _ = self._check_once(case, implementation)
        if row.status is Status.ERROR and not implementation.is_external:
            self.pool.discard()  # an error on the device can outlive the call that caused it
        row.weakness = "; ".join(filter(None, (*ops.operation(case).weaknesses, row.weakness)))
        if row.status is Status.OK and self.options.telling:
            self._probe(case, implementation, row)
        return row

    def _check_once(self, case: Case, implementation: Implementation) -> tuple[Row, bool]:
        """The row, and whether it is final: False for a failure that another implementation may have caused."""
        row = self.new_row(case, implementation)
        row.versions = ", ".join(filter(None, (implementation.versions(), self.pool.network)))
        try:
            reply = self.pool.ask(self._check_request(case, implementation), timeout_s=self.options.timeout_s)
        except WorkerTimeoutError as error:
            row.status, row.reason = Status.TIMEOUT, str(error)
            row.killed_from_outside = error.from_outside
            return row, True
        except WorkerDiedError as error:
            row.status, row.reason = Status.ERROR, str(error)
            row.killed_from_outside = error.from_outside
            return row, error.from_outside
        _record_check(row, reply)
        return row, row.status not in (Status.ERROR, Status.WRONG)

    def _probe(self, case: Case, implementation: Implementation, row: Row) -> None:
        """Record the results of the telling cases in a row that is ok.

        They run once in a dtype and precision, and once more for options that add operands.
        """
        added = added_operands(ops.operation(case), case)
        key = (case.operation, case.dtype, case.precision, added, implementation.name)
        result = self._probed.get(key)
        if result is None:
            result = self._probe_once(case, implementation)
            shared = not implementation.is_external and self.pool.has_run_others(implementation.name)
            if shared and result["status"] != Status.OK and not result.get("killed_from_outside"):
                self.pool.discard()
                result = self._probe_once(case, implementation)
            if result["status"] == Status.ERROR and not implementation.is_external:
                self.pool.discard()
            if not result.get("killed_from_outside"):
                self._probed[key] = result
        reason = row.reason
        row.fill(result)
        row.reason = joined_reasons(row.reason, reason)

    def _probe_once(self, case: Case, implementation: Implementation) -> Mapping[str, object]:
        # No parity test runs operations over ranks on all families; on a CPU the tests run them on these cases.
        every = self.options.every_telling or (ops.operation(case).over_ranks and self.device.type == "cuda")
        request = ProbeRequest(case, implementation.reference, self.options.seed, self.options.timeout_s, every)
        try:
            reply = self.pool.ask(request, timeout_s=self.options.timeout_s)
        except WorkerDiedError as error:
            status = Status.TIMEOUT if isinstance(error, WorkerTimeoutError) else Status.ERROR
            return {"status": status, "reason": str(error), "killed_from_outside": error.from_outside}
        if isinstance(reply, Failed):
            return {"status": reply.status, "reason": reply.reason, "killed_from_outside": reply.from_outside}
        return vars(reply)

    def _check_request(self, case: Case, implementation: Implementation) -> CheckRequest:
        return CheckRequest(case, implementation.reference, self.options.seed, self.options.timeout_s)

    # ------------------------------------------------------------------- time

    def _time_all(self, job: Job, case: Case, rows: Sequence[Row], position: int, progress: CaseProgress) -> None:
        """Time `rows` together, once more if the clocks slowed down; then set their rates and distance to the limit."""
        if all(row.timed for row in rows):
            return
        progress.step(position, f"timing {len(rows)} implementations")
        self._time(job, case, rows, position, progress)
        if any(row.clocks_lowered for row in rows):
            progress.step(position, "timing again after a slowdown of the clocks")
            self._time(job, case, rows, position, progress)
        if self.options.repeat > 1:
            self._runs.update((row.key, [replace(row)]) for row in rows)
        self._complete(job, case, rows, progress)

    def _complete(self, job: Job, case: Case, rows: Sequence[Row], progress: CaseProgress) -> None:
        """Set the columns that follow from the times. A measured peak that a row exceeds is first measured again."""
        arithmetic = {each.name: each.arithmetic or "" for each in job.implementations}

        def of_row(row: Row) -> dict[str, Any]:
            return {"ceilings": self.ceilings.peaks, "arithmetic": arithmetic[row.implementation]}

        if any(passes_ceiling(row, job.op, case, self.device.name, **of_row(row)) for row in rows):
            self.ceilings.measure_again(self.options.timeout_s, partial(progress.step, len(rows)))
        for row in rows:
            row.fill(rates(row, job.op, case, self.device.name, **of_row(row)))
        mark_noisy(rows, self.options.max_noise)
        set_vs_peer(rows)
        set_error_vs_vendor(rows)
        progress.store(rows)

    def _time(self, job: Job, case: Case, rows: Sequence[Row], position: int, progress: CaseProgress) -> None:
        """Time the rows that are ok: those of the tree together, then each user's file in its own process.

        An implementation that fails becomes an error row, and the others are timed without it.
        """
        by_name = {row.implementation: row for row in rows if row.status is Status.OK}
        external = {each.name: each.reference for each in job.implementations if each.is_external}

        def on_retry(failure: Failure) -> None:
            progress.step(position, f"timing again, since the last attempt failed: {failure.reason}")

        in_tree = {name: row for name, row in by_name.items() if name not in external}
        self._time_rows(in_tree, lambda names: self._attempt(self._request(case, names)), on_retry)
        vendor = reference_of(in_tree.values())
        for name in [name for name in by_name if name in external]:
            progress.step(position, f"timing {name} in its own process")
            request = self._external_request(case, external[name], vendor)
            self._time_rows({name: by_name[name]}, partial(self._attempt_alone, request), on_retry)
            by_name[name].reason = joined_reasons(by_name[name].reason, self._limits.restore())
        rank_against_own(rows, external, self.options.max_noise)

    def _time_rows(
        self,
        by_name: Mapping[str, Row],
        attempt: attribution.Attempt[TimingColumns],
        on_retry: Callable[[Failure], None],
    ) -> None:
        """Time rows together by `attempt`, and record the times and failures in them."""
        outcome = attribution.time_together(list(by_name), attempt, on_retry)
        for name, row in by_name.items():
            if name in outcome.timings:
                _record_timing(row, outcome.timings[name])
            elif name in outcome.failed:
                row.status = Status(outcome.failed[name].status)
                wrong = "wrong " if row.status is Status.WRONG else ""
                row.reason = f"{wrong}while timed: {outcome.failed[name].reason}"
                row.killed_from_outside = outcome.failed[name].from_outside
                row.timed = Attempt.FAILED
            elif outcome.given_up is not None:
                row.timed = Attempt.FAILED if row.device_us is None else Attempt.DONE
                row.killed_from_outside = outcome.given_up.from_outside and row.device_us is None
                row.reason = joined_reasons(row.reason, f"not timed: {outcome.given_up.reason}")

    def _request(self, case: Case, names: Sequence[str]) -> TimeRequest:
        options = self.options
        how = (options.seed, options.cache, options.transfers, options.max_noise, options.least)
        return TimeRequest(case, tuple(names), *how)

    def _external_request(self, case: Case, reference: Reference, vendor: Row | None) -> TimeExternalRequest:
        """The request to time a user's file. `vendor` is the row of the best vendor implementation."""
        assert isinstance(reference, ExternalReference)
        options = self.options
        return TimeExternalRequest(
            case,
            reference,
            options.seed,
            options.cache,
            options.transfers,
            max_noise=options.max_noise,
            least=options.least,
            vendor=vendor.implementation if vendor is not None else "",
            vendor_us=(vendor.device_us_high or vendor.device_us or 0.0) if vendor is not None else 0.0,
            timeout_s=options.timeout_s,
        )

    def _attempt_alone(
        self, request: TimeExternalRequest, names: Sequence[str]
    ) -> Mapping[str, TimingColumns] | Failure:
        return self._attempt(request)

    def _attempt(self, request: TimeRequest | TimeExternalRequest) -> Mapping[str, TimingColumns] | Failure:
        """One attempt to time implementations together, or a user's file alone."""
        try:
            reply = self.pool.ask(request, timeout_s=self.options.timeout_s)
        except WorkerTimeoutError as error:
            return Failure(
                Status.TIMEOUT, str(error), error.last_started, certain=True, from_outside=error.from_outside
            )
        except WorkerDiedError as error:
            outside = error.from_outside
            return Failure(Status.ERROR, str(error), error.last_started, certain=outside, from_outside=outside)
        if isinstance(reply, TimingFailed):
            if isinstance(request, TimeRequest):
                self.pool.discard()
            wrong = {name: one_line(reason) for name, reason in reply.wrong.items()}
            return Failure(
                reply.status,
                one_line(reply.reason),
                reply.implementation,
                from_outside=reply.from_outside,
                worker_alive=True,
                wrong=wrong,
            )
        return reply.timings

    # ---------------------------------------------------------------- sustain

    def _sustain_all(self, job: Job, case: Case, rows: Sequence[Row], position: int, progress: CaseProgress) -> None:
        """Measure the sustained times of the rows that `--sustained` chooses."""
        chosen = sustain.chosen(rows, job, case, self.options.sustained)
        for row in [row for row in chosen if not row.sustained]:
            progress.step(position, f"sustained load of {row.implementation}")
            sustain.measure(self.pool, row, case, self.options)
            self._complete(job, case, rows, progress)

    # ---------------------------------------------------------------- compile

    def _compile_all(self, job: Job, case: Case, rows: Sequence[Row], position: int, progress: CaseProgress) -> None:
        """Measure the first calls of `rows` in fresh processes."""
        implementations = {each.name: each for each in job.implementations}
        for row in rows:
            if row.status is Status.OK and not row.compiled:
                progress.step(position, f"compiling {row.implementation} in fresh processes")
                compile_times.measure(row, case, implementations[row.implementation], self.device, self.options)
                progress.store([row])


def _record_check(row: Row, reply: CheckReply | Failed) -> None:
    """Set the columns of the checked call."""
    if isinstance(reply, Failed):
        row.status, row.reason = Status(reply.status), one_line(reply.reason)
        row.killed_from_outside = reply.from_outside
    else:
        row.fill(vars(reply))


def _record_timing(row: Row, timing: TimingColumns) -> None:
    """Set the columns of the times. A new reason is appended to the one that the row has."""
    reason, judged = row.reason, (row.judged or 0) + timing.judged
    row.fill({**vars(timing), "judged": judged})
    row.reason = joined_reasons(reason, row.reason)
    row.timed = Attempt.FAILED if row.device_us is None else Attempt.DONE
