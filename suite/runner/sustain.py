"""Chooses the rows of a case that get a sustained time, and measures them in the device's worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from suite.core.text import joined_reasons, one_line
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.results.groups import is_timed
from suite.results.row import Attempt, Row
from suite.runner.options import Options, Sustain
from suite.runner.plan import Job
from suite.worker.pool import Pool, WorkerDiedError
from suite.worker.protocol import Failed, SustainRequest


def chosen(rows: Sequence[Row], job: Job, case: Case, sustain: Sustain) -> list[Row]:
    """The rows of `case` that get a sustained time. A user's file gets none: no result of these calls is judged."""
    if sustain is Sustain.NONE or (sustain is Sustain.LARGEST and case != largest(job.op, job.cases)):
        return []
    frameworks = {each.name: each.framework for each in job.implementations if not each.is_external}
    timed = sorted(
        (row for row in rows if is_timed(row) and row.implementation in frameworks), key=lambda row: row.device_us or 0
    )
    if sustain is Sustain.ALL:
        return timed
    groups = (frameworks[row.implementation] for row in timed)
    fastest = {name: row for row, name in zip(reversed(timed), reversed(list(groups)), strict=True)}
    vendor = next((row for row in timed if row.vendor), None)
    wanted = [*fastest.values(), *([vendor] if vendor is not None else [])]
    return [row for row in timed if any(row is each for each in wanted)]


def largest(op: Operation, cases: Iterable[Case]) -> Case:
    """The case with the most flops (bytes if there are none); of several, that with the fewest bytes, then the last."""

    def size(case: Case) -> tuple[int, int]:
        flops, bytes = op.flops(case), op.bytes(case)
        return (flops, -bytes) if flops else (0, bytes)

    return max(reversed(list(cases)), key=size)


def measure(pool: Pool, row: Row, case: Case, options: Options) -> None:
    """Measure the sustained time of `row`. A failure is a remark: the row keeps its other times."""
    try:
        reply = pool.ask(SustainRequest(case, row.implementation, options.seed), timeout_s=options.timeout_s)
    except WorkerDiedError as error:
        reply = Failed(str(error), row.implementation)
    if isinstance(reply, Failed):
        pool.discard()
        row.sustained = Attempt.FAILED
        row.remarks = joined_reasons(row.remarks, f"no sustained time: {one_line(reply.reason)}")
        return
    row.sustained = Attempt.DONE
    row.fill(reply.columns)
