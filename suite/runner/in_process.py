"""Checks a function of the caller in this process, or times it in turns with implementations of the tree."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from suite import frameworks
from suite.core.errors import DisagreementError, UsageError
from suite.core.least import NOTHING_MORE, Least
from suite.hardware import measured_peaks
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.results.noise import mark_noisy
from suite.results.rates import rates
from suite.results.row import COLUMNS, Attempt, Row
from suite.runner.arguments import check_known, title
from suite.worker.timed_call import timed_call

if TYPE_CHECKING:
    import torch

    from suite.checking.check import CheckResult
    from suite.checking.problem import Problem
    from suite.checking.timed_inputs import TimedInputs
    from suite.frameworks.base import Adapter
    from suite.timing import Call, Timing


@dataclass(frozen=True)
class CallerFunction(Implementation):
    """A function of the calling process, as an implementation."""

    given: Callable[..., Any] = print

    def function(self) -> Callable[..., Any]:
        return self.given


def caller_implementation(function: Callable[..., Any], operation: str, framework: str) -> CallerFunction:
    """`function` as an implementation called `with/NAME`. Raises `UsageError` for an unknown framework."""
    check_callable(function)
    name = getattr(function, "__name__", "function")
    return CallerFunction(operation, f"with/{name}", adapter(framework).name, "", given=function)


def check_callable(function: object) -> None:
    """Raise `UsageError` for what is no function."""
    if not callable(function):
        raise UsageError(f"function: {function!r} cannot be called; give a function")


def adapter(framework: str) -> Adapter:
    check_known("framework", framework, frameworks.names())
    return frameworks.get(framework)


def check(function: Callable[..., Any], adapter: Adapter, case: Case, where: Device, seed: int) -> CheckResult:
    """Call `function` on `case`, and judge its results."""
    from suite.checking.check import check as run
    from suite.checking.problem import Problem
    from suite.checking.repeats import CHECKED

    check_callable(function)
    with _current_device(where) as device:
        adapter.prepare(where)
        return run(lambda: function, adapter, Problem(case, seed, device), repeats=CHECKED)


def tree_implementation(operation: str, name: str, where: Device, case: Case) -> Implementation:
    """The implementation `name` of the tree. Raises `UsageError` if there is none or it cannot run `case`."""
    check_known("beside", name, [each.name for each in builtin.implementations(operation)])
    found = builtin.find(operation, name)
    if (obstacle := found.obstacle(where, case)) is not None:
        raise UsageError(f"beside: {name} cannot run: {obstacle[1]}")
    return found


def time(
    timed: Sequence[Implementation],
    case: Case,
    where: Device,
    *,
    cache: str,
    max_noise: float,
    least: Least = NOTHING_MORE,
    seed: int,
) -> list[tuple[Timing, Row]]:
    """Time implementations in turns. Returns the times of each, with the row that `compare` would give it.

    Raises `UsageError` for one that is not native on `where`, `DisagreementError` for one that does not agree.
    """
    from suite.checking.problem import Problem

    for each in timed:
        if (mode := each.adapter.mode(where)) != "native":
            raise UsageError(f"{each.framework} is {mode} on {where}, and not timed: use a GPU")
    with _current_device(where) as device:
        for each in timed:
            each.adapter.prepare(where)
        problem = Problem(case, seed, device)
        found = {each.name: _check_agrees(each, problem) for each in timed}
        times = _times(timed, problem, cache, max_noise, least)
    if where.type == "cpu":
        times = {each.name: _with_threads(each.adapter, times[each.name]) for each in timed}
    rows = [_row(each, problem, where, seed, found[each.name], times[each.name]) for each in timed]
    mark_noisy(rows, max_noise)
    return [(times[row.implementation], row) for row in rows]


def _with_threads(adapter: Adapter, times: Timing) -> Timing:
    """`times` with the number of threads that the framework really had: unknown if it was in use before."""
    if not adapter.has_own_threads():
        return times
    flag = f"{adapter.name} was in use before, and keeps its own number of threads"
    return replace(times, threads=None, flags=(*times.flags, flag))


def _check_agrees(implementation: Implementation, problem: Problem) -> CheckResult:
    from suite.checking.check import check as run

    found = run(implementation.function, implementation.adapter, problem)
    if not found.agrees:
        raise DisagreementError(f"{implementation.name}: {title(problem.case)}: {found.reason}")
    return found


def _times(
    timed: Sequence[Implementation], problem: Problem, cache: str, max_noise: float, least: Least
) -> Mapping[str, Timing]:
    """The times by name of implementation. Raises `DisagreementError` if a timed result is wrong."""
    from suite import timing
    from suite.timing.budgets import BUDGETS_S

    calls, inputs = _calls(timed, problem)
    times = timing.measure(
        calls,
        device=problem.device,
        cache=cache,
        budget_s=BUDGETS_S[problem.device.type],
        max_noise=max_noise,
        least=least,
        inputs=inputs,
    )
    for name, reason in inputs.judge().items():
        raise DisagreementError(f"{name}: {title(problem.case)}, while timed: {reason}")
    return times


def _calls(timed: Sequence[Implementation], problem: Problem) -> tuple[list[Call], TimedInputs]:
    """The calls to time, and the inputs that change between them."""
    from suite.checking.timed_inputs import LocalResults, TimedInputs
    from suite.implementations.bound_call import bind

    problem.present(0)
    bound = {each.name: bind(each, problem.buffers, problem.op.arguments(problem.case)) for each in timed}

    def rebind() -> None:
        for each in bound.values():
            each.rebind(problem.buffers)

    adapters = {each.name: each.adapter for each in timed}
    calls = [timed_call(bound[each.name], problem) for each in timed]
    return calls, TimedInputs(problem, LocalResults(problem, adapters), rebind)


def _row(
    implementation: Implementation, problem: Problem, where: Device, seed: int, found: CheckResult, times: Timing
) -> Row:
    case, op = problem.case, problem.op
    row = Row(case.operation, case.label, case.dtype, case.precision, implementation.name, device=str(where), seed=seed)
    row.vendor, row.peer = implementation.vendor or "", implementation.peer or ""
    row.versions = implementation.versions()
    row.bytes, row.flops = op.bytes(case), op.flops(case)
    measured = {**vars(found), **vars(times), "reason": times.error, "remarks": "; ".join(times.flags)}
    row.fill({name: value for name, value in measured.items() if name in COLUMNS})
    row.timed = Attempt.FAILED if row.device_us is None else Attempt.DONE
    ceilings = measured_peaks.find(where.results_folder, where.name)
    row.fill(rates(row, op, case, where.name, ceilings=ceilings, arithmetic=implementation.arithmetic or ""))
    return row


@contextlib.contextmanager
def _current_device(where: Device) -> Iterator[torch.device]:
    """The torch device of `where`. It is torch's current device inside the context."""
    import torch

    device = torch.device(where.type, where.index) if where.type == "cuda" else torch.device("cpu")
    with torch.cuda.device(device) if where.type == "cuda" else contextlib.nullcontext():
        yield device
