"""`compare --once IMPL` makes one call in this process, for a profiler."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from suite.cli.messages import say
from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.core.text import one_line

if TYPE_CHECKING:
    from suite.hardware.device import Device
    from suite.implementations.implementation import Implementation
    from suite.problem.case import Case
    from suite.runner.selection import Selection


def call_once(selection: Selection, where: Device, name: str, seed: int, *, alone: bool = True) -> None:
    """Call the implementation `name` once on each case of `selection`. Nothing is checked, timed or written.

    Ends with exit status 1 if a call fails or none can be made. Raises `UsageError` if no operation has `name`, and
    unless `alone`: `--profile` or `--dump` was given too.
    """
    from suite import hardware
    from suite.frameworks import _caches
    from suite.profiling import once
    from suite.runner.plan import plan, refuse_too_large

    if not alone:
        raise UsageError("--once makes one call and nothing else: give it without --profile and --dump")
    memory = hardware.memory_bytes(where.type, where.index)
    jobs = plan(selection, where, memory)
    names = list(dict.fromkeys(each.name for job in jobs for each in job.implementations))
    if name not in names:
        raise UsageError(f"--once: {unknown(name, names, see='list')}")
    refuse_too_large(jobs, memory, where.name)
    if together := [job.op.name for job in jobs if job.op.over_ranks]:
        raise UsageError(f"--once makes one call in one process, and {', '.join(together)} runs in several")
    chosen = [(case, each) for job in jobs for each in job.implementations if each.name == name for case in job.cases]
    once.prepare(where)
    try:
        outcomes = [_call(case, each, where, seed) for case, each in chosen]
    finally:
        _caches.remove_temporary(os.getpid())
    raise typer.Exit(1 if "error" in outcomes or "called" not in outcomes else 0)


def _call(case: Case, implementation: Implementation, where: Device, seed: int) -> str:
    """Make the call of one case. Prints and returns the outcome: `called`, `error`, or the reason of a missing call."""
    from suite.implementations import failure
    from suite.profiling import once
    from suite.runner.arguments import title

    outcome, reason = implementation.obstacle(where, case) or ("called", "")
    if outcome == "called":
        try:
            once.call(case, implementation, seed, once.torch_device(where, where.index))
        except NotImplementedError as error:
            outcome, reason = "unsupported", failure.unsupported_reason(error)
        except Exception as error:
            outcome, reason = "error", implementation.describe_error(error, where.type)
    say(f"{title(case)}: {implementation.name} {outcome}{f': {one_line(reason)}' if reason else ''}")
    return outcome
