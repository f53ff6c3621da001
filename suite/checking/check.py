"""The check of one implementation on one case: three calls, their use of memory, and the verdict on their results.

A single right result is not enough. A kernel may return a stale result, read its inputs before they are written, or be
right only sometimes. Elements that it leaves unwritten may hold the right numbers from freed memory.

    call   inputs                        what it shows
    1      draw 0                        load, build and compile; its time is `first_call_s`
    2      draw 1, in the same memory    stale results; work on a stream that does not wait for the inputs
    3      draw 0 again                  whether the bits are those of call 1: `deterministic`

`calls` makes each call and copies its result, `memory` finds writes outside of the result, and `judge` compares the
copy with the truth. If it is wrong, `diagnosis` names the likely mistake.

- All calls read the same buffers, which hold the previous call's inputs until they are overwritten: catches results
  cached by input address.
- On a GPU the inputs of call 2 arrive late (`Adapter.late_inputs`), and the output is copied in stream order as soon as
  the call returns: catches work on another stream.
- Memory that a call allocates holds NaN at first (`Adapter.poisoned`): catches unwritten elements.
- Inputs, and results that torch allocates, lie between guard bands of NaN: catches reads and writes beside them.
- Call 3 is repeated for a given time: catches races and faults by chance that are wrong in one of many calls.
- The first result is held until the end, and compared with its copy: catches buffers that are returned in turn, and
  threads that write later.

A refusal begins with its kind: `type`, `shape`, `dtype`, `device`, `strides` (the values are not compared then);
`unfinished`, `aliases input`, `inputs changed`, `wrote outside`, `same buffer`, `result changed`, `not finite`,
`value`, `not deterministic`. Results that differ from call to call are allowed, unless the implementation's file says
`DETERMINISTIC = True`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter  # bound before any user's file can replace it
from typing import TYPE_CHECKING, Any

import torch

from suite.checking.calls import Caller, LocalCaller, RefusedError, Result
from suite.checking.coincidence import differ
from suite.checking.diagnosis import Diagnosis, diagnose
from suite.checking.judge import Verdict, judge
from suite.checking.memory import SHARED, first_difference, identical, misuses, same_bits
from suite.checking.problem import Right
from suite.checking.repeats import Duration, Repeats, repeat
from suite.core.phases import Phase
from suite.numerics import subnormals

if TYPE_CHECKING:
    from suite.checking.problem import Problem
    from suite.frameworks.base import Adapter

NO_TIME = Duration()
EXPLAIN_CHANGES = frozenset(("unfinished", "aliases input", "same buffer"))
HELD_BYTES = 1 << 26
"""Largest first result that is held until all calls are made; larger ones until the second."""


@dataclass(frozen=True)
class CheckResult:
    """The outcome of the check. Errors are the largest of all judged results; `reason` lists all that is wrong."""

    agrees: bool
    reason: str
    first_call_s: float
    error_ratio: float = math.inf
    """Largest error over its bound; above 1 is wrong."""
    max_ulp: float = math.inf
    max_rel: float = math.inf
    rms: float = math.inf
    """Root mean square error of the least accurate result."""
    deterministic: str = ""
    """`yes` or `no`; empty if a refusal left fewer than two results to compare."""
    diagnosis: str = ""
    """`as if ...`: the usual mistake that explains the wrong values; empty if none does."""
    error_map: str = ""
    """The share of wrong elements by tile (`suite/checking/error_map.py`)."""
    judged: int = 0
    """Calls whose whole result is judged."""

    @property
    def explanation(self) -> str:
        """The reason, and the diagnosis if there is one."""
        return "; ".join(filter(None, (self.reason, self.diagnosis)))


def check(
    load: Callable[[], Callable[..., Any]],
    adapter: Adapter,
    problem: Problem,
    *,
    claims_determinism: bool = False,
    repeats: Duration = NO_TIME,
    on_phase: Callable[[Phase], None] = lambda phase: None,
) -> CheckResult:
    """Call an implementation three times in this process, repeat the third for some time, and judge the results.

    load: returns the function; its time is part of `first_call_s`. claims_determinism: results with other bits are
    refused. repeats: the time for repeated calls. on_phase: is called before each call and before the judging.
    Exceptions of the implementation pass through.
    """
    adapter.forget_calls()
    caller = LocalCaller(load, adapter, problem)
    return check_calls(caller, problem, claims_determinism=claims_determinism, repeats=repeats, on_phase=on_phase)


def check_calls(
    caller: Caller,
    problem: Problem,
    *,
    claims_determinism: bool = False,
    repeats: Duration = NO_TIME,
    on_phase: Callable[[Phase], None] = lambda phase: None,
) -> CheckResult:
    """Check the calls that `caller` makes on the buffers of `problem`, as `check` does in this process."""
    begin = perf_counter()
    on_phase(Phase.FIRST_CALL)
    try:
        first = caller.call(0)
        first_call_s, first_copy = perf_counter() - begin, first.early
        wrong = _misuses(problem, 0, first, ())
        settled = first.now().clone() if first.unfinished else first_copy

        on_phase(Phase.SECOND_CALL)
        second = caller.call(1, late=True)
        wrong |= _misuses(problem, 1, second, (first,))
        wrong |= _changed_later([first], settled, wrong)
        on_phase(Phase.JUDGING)
        second_verdict = judge_draw(second.early, problem, 1)
        stale = not second_verdict.agrees and same_bits(first_copy, second.early) and _draws_differ(problem)
        first_verdict = judge_draw(first_copy, problem, 0)
        diagnosis = _diagnosis([first_copy, second.early], [first_verdict, second_verdict], problem)
        second.early = first_copy.new_empty(0)  # frees a quarter of the memory that outputs take
        on_phase(Phase.THIRD_CALL)
        third_begin = perf_counter()
        third = caller.call(0)
        third_call_s = perf_counter() - third_begin
        wrong |= _misuses(problem, 0, third, (first, second))
        another, judged = (None, 3) if same_bits(third.early, first_copy) else (third.early, 2)
        held = [first] if first_copy.nbytes <= HELD_BYTES else []
        del first, second, third, settled  # results take most of the memory of a large case
        judge_first = partial(judge_draw, problem=problem, draw=0)
        later = repeat(caller, first_copy, another, third_call_s, repeats, judge_first, held)
        wrong = _faults(later, held, first_copy, wrong)
    except RefusedError as refused:
        return CheckResult(False, str(refused), perf_counter() - begin)
    on_phase(Phase.JUDGING)
    verdicts = [first_verdict, second_verdict, *later.verdicts]
    another = later.worst
    if another is not None and [each.agrees for each in verdicts] == [True, True, False]:
        diagnosis = _diagnosis([another], verdicts[2:], problem)
    reasons = [f"{kind}: {what}" for kind, what in wrong.items()] + _disagreement(verdicts, stale)
    if claims_determinism and another is not None:
        difference = first_difference(another, first_copy, problem.position)
        reasons.append(f"not deterministic: {difference}, but the file says DETERMINISTIC = True")
    return CheckResult(
        agrees=not reasons,
        reason="; ".join(reasons),
        first_call_s=first_call_s,
        error_ratio=max(verdict.error_ratio for verdict in verdicts),
        max_ulp=max(verdict.max_ulp for verdict in verdicts),
        max_rel=max(verdict.max_rel for verdict in verdicts),
        rms=max(verdict.rms for verdict in verdicts),
        deterministic="yes" if another is None else "no",
        diagnosis=diagnosis.text,
        error_map=diagnosis.error_map,
        judged=judged + later.judged,
    )


def judge_draw(output: torch.Tensor, problem: Problem, draw: int) -> Verdict:
    """Judge an output as the result of a draw of the problem's inputs.

    A result with the bits of an earlier one that is right has its verdict.
    """
    known = problem.right.get(draw)
    if known is not None and output.is_contiguous() and identical(output, known.output):
        return known.verdict
    keeps = known is None and problem.keeps_right(output)
    output = output.clone() if keeps else output  # a copy, which no later write can change
    with subnormals.preserved(problem.device):
        truth, shape, dtype = problem.truth(draw), problem.output_shape, problem.output_dtype
        found = judge(output, truth, shape=shape, dtype=dtype, position=problem.position, results=problem.results)
    if keeps and found.agrees:
        problem.right[draw] = Right(output, found)
    return found


def _diagnosis(outputs: Sequence[torch.Tensor], verdicts: Sequence[Verdict], problem: Problem) -> Diagnosis:
    """Diagnose the first wrong result. The outputs are of draw 0 and then of draw 1."""
    wrong = [
        (draw, output) for draw, (output, found) in enumerate(zip(outputs, verdicts, strict=True)) if not found.agrees
    ]
    if not wrong:
        return Diagnosis()
    (draw, output), *more = wrong
    with subnormals.preserved(problem.device):
        return diagnose(output, draw, problem, beside=more[0][1] if more else None)


def check_briefly(caller: Caller, problem: Problem, repeats: Duration) -> tuple[str, Diagnosis]:
    """Check one call on draw 0, repeated for some time. Returns what is wrong, empty if nothing is, and why.

    Raises `RefusedError` for a result of another form. Exceptions of the implementation pass through.
    """
    begin = perf_counter()
    result = caller.call(0)
    wrong = _misuses(problem, 0, result, ())
    call_s, judge_result = perf_counter() - begin, partial(judge_draw, problem=problem, draw=0)
    later = repeat(caller, result.early, None, call_s, repeats, judge_result, [result])
    wrong = _faults(later, [result], result.early, wrong)
    outputs = [each for each in (result.early, later.worst) if each is not None]
    verdicts = [judge_result(result.early), *later.verdicts]
    found = [(each, verdict) for each, verdict in zip(outputs, verdicts, strict=True) if not verdict.agrees][:1]
    reasons = [f"{kind}: {what}" for kind, what in wrong.items()] + [verdict.reason for _, verdict in found]
    return "; ".join(reasons), _diagnosis([each for each, _ in found], [verdict for _, verdict in found], problem)


def _misuses(problem: Problem, draw: int, result: Result, earlier: Sequence[Result]) -> dict[str, str]:
    return misuses(result, problem.buffers, problem.changed(draw), earlier)


def _changed_later(held: Sequence[Result], copy: torch.Tensor, known: Collection[str]) -> dict[str, str]:
    """Return the fault of held results of which one no longer has the bits of `copy`, by kind; empty if all have.

    known: the kinds of faults found before, some of which explain the change.
    """
    explained = not EXPLAIN_CHANGES.isdisjoint(known)
    if explained or all(same_bits(each.now(), copy) for each in held):
        return {}
    return {"result changed": "a later call, or another thread or process, wrote to the result of the first call"}


def _faults(later: Repeats, held: Sequence[Result], copy: torch.Tensor, known: Mapping[str, str]) -> dict[str, str]:
    """Return the known faults of the use of memory, and those that repeated calls show."""
    found = dict(known) | ({"same buffer": SHARED} if later.shares else {})
    return found | _changed_later(held, copy, found)


def _draws_differ(problem: Problem) -> bool:
    """True if a right result of one draw has the bits of one of the other only by an unlikely chance."""
    return differ(problem.truth(0), problem.truth(1), problem.output_dtype)


def _disagreement(verdicts: Sequence[Verdict], stale: bool) -> list[str]:
    """Return the reason of the first wrong verdict, if there is one.

    verdicts: on draw 0, on draw 1, and on later results of draw 0 with other bits. stale: both draws gave the same
    bits.
    """
    first, second, *others = verdicts
    if not first.agrees:
        return [first.reason]
    if not second.agrees and stale:
        return [f"{second.reason}: the second call gave the first one's result: stale, or from inputs not yet there"]
    if not second.agrees:
        return [f"{second.reason} (in the second call, with other inputs)"]
    return [f"{each.reason} (in a later call, with the inputs of the first)" for each in others if not each.agrees]
