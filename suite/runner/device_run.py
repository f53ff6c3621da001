"""The lines of one device on one case: each is checked, then those that agree are timed together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.core.text import one_line
from suite.hardware import measured
from suite.implementations.builtin import Implementation
from suite.problem.case import Case
from suite.results.rates import rates
from suite.results.row import Attempt, Key, Mode, Row, Status
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


@dataclass(frozen=True)
class _Failure:
    """Why rows that were timed together have no times. `culprit` is the one that was running; `final` says that
    it was, beyond doubt; `alive` that the worker itself was well."""

    status: Status
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
        self.ceilings = measured.find(self.device.results_folder, self.device.name)

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
        timed = [row for row in rows if row.status is Status.OK and row.mode is Mode.NATIVE]
        if self.options.timed and any(row.timed is Attempt.NOT_TRIED for row in timed):
            tell(len(rows), f"timing {len(timed)} implementations")
            self.time(case, timed, partial(tell, len(rows)))
            if any(row.clocks_lowered for row in timed):
                tell(len(rows), "timing again after a slowdown of the clocks")
                self.time(case, timed, partial(tell, len(rows)))
            arithmetic = {line.name: line.arithmetic for line in job.implementations}
            for row in timed:
                products = arithmetic[row.implementation] or ""
                row.fill(rates(row, job.op, case, self.device.name, ceilings=self.ceilings, arithmetic=products))
            keep(timed)
        if self.options.timed and self.options.compiles:
            for row in (row for row in timed if row.status is Status.OK and row.compiled is Attempt.NOT_TRIED):
                tell(len(rows), f"compiling {row.implementation} in fresh processes")
                self.compile(case, row)
                keep([row])
        return rows

    def row(self, case: Case, implementation: Implementation) -> Row:
        """What is known of a row before anything has run."""
        row = Row(case.operation, case.label, case.dtype, case.precision, implementation.name)
        row.mode = Mode(implementation.adapter.mode(self.device))
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
            row.status, row.reason = Status(obstacle[0]), obstacle[1]
            return row
        if not self.every_line and row.mode is not Mode.NATIVE:
            row.status, row.reason = Status.UNSUPPORTED, f"{row.mode} here, and a sweep is for what runs natively"
            return row
        row.versions = implementation.versions()
        shared = self.pool.served_others(implementation.name)
        if not self.examine(case, row) and shared:
            self.pool.discard()
            row = self.row(case, implementation)
            row.versions = implementation.versions()
            self.examine(case, row)
        if row.status is Status.ERROR:
            self.pool.discard()  # an error on the device can outlive the call that caused it
        return row

    def examine(self, case: Case, row: Row) -> bool:
        """Fill in `row`. False for a failure that somebody else may have caused."""
        try:
            _fill(row, self.pool.ask(self.check_request(case, row), timeout_s=self.options.timeout_s))
        except WorkerTimeoutError as error:
            row.status, row.reason = Status.TIMEOUT, str(error)
        except WorkerDiedError as error:
            row.status, row.reason = Status.ERROR, str(error)
            return error.from_outside
        return row.status not in (Status.ERROR, Status.WRONG)

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
        rows = [row for row in rows if row.status is Status.OK]
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
                        row.reason = _joined(noted[row.implementation], f"not timed: {failure.reason}")
                        row.timed = Attempt.FAILED if row.device_us is None else Attempt.DONE
                    return
            for row in guilty:
                row.status, row.reason = failure.status, f"while timed: {failure.reason}"
                row.timed = Attempt.FAILED
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
            return _Failure(Status.TIMEOUT, str(error), error.last_started, final=True)
        except WorkerDiedError as error:
            return _Failure(Status.ERROR, str(error), error.last_started, final=error.from_outside)
        if "timings" not in answer:
            self.pool.discard()
            status = Status.WRONG if answer["status"] == "wrong" else Status.ERROR
            return _Failure(status, one_line(answer["reason"]), answer["failed"], alive=True)
        for row in rows if noted is not None else ():
            _fill(row, answer["timings"][row.implementation])
            row.timed = Attempt.FAILED if row.device_us is None else Attempt.DONE
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
                        row.compiled = Attempt.FAILED
                        row.reason = _joined(row.reason, f"not compiled again: {error}")
                        return
                    setattr(row, column, answer.get("first_call_s"))
                    if answer.get("status") != "ok":
                        row.compiled = Attempt.FAILED
                        row.reason = _joined(row.reason, f"not compiled again: {one_line(answer.get('reason'))}")
                        return
        row.compiled = Attempt.DONE


def _fill(row: Row, values: dict[str, Any]) -> None:
    """Copy a worker's reply. `failed` is the one field of a reply that is no column."""
    row.fill({name: value for name, value in values.items() if name != "failed"})


def _joined(reason: str, more: str) -> str:
    return reason if more in reason else "; ".join(filter(None, [reason, more]))
