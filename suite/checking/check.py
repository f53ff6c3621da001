"""The checked call: one implementation, called three times on one case, and what must be true of the results.

A single right result is not enough: a kernel may return a stale result, read its inputs before they are written, leave
elements unwritten where freed memory happens to hold the right numbers, or be right only sometimes.

    call   inputs                        what it shows
    1      draw 0                        load, build and compile; its time is `first_call_s`
    2      draw 1, in the same memory    stale results; work on a stream that does not wait for the inputs
    3      draw 0 again                  whether the bits are those of call 1: `deterministic`

- All calls read the same buffers, which hold the previous call's inputs until they are overwritten: catches results
  cached by input address.
- On a GPU the inputs of call 2 arrive late (`Adapter.late_inputs`), and the output is copied in stream order as soon as
  the call returns: catches work on another stream.
- Memory that a call allocates holds NaN at first (`Adapter.poisoned`): catches unwritten elements.
- Inputs, and results that torch allocates, lie between guard bands of NaN: catches reads and writes beside them.
- Call 3 is repeated for a given time: catches races that are wrong in one of many calls.

A refusal begins with its kind: `type`, `shape`, `dtype`, `device`, `strides` (the values are not compared then);
`unfinished`, `aliases input`, `inputs changed`, `wrote outside`, `same buffer`, `not finite`, `value`,
`not deterministic`. Results that differ from call to call are allowed, unless the implementation's file says
`DETERMINISTIC = True`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter  # bound before any user's file can replace it
from typing import TYPE_CHECKING, Any, Protocol

import torch

from suite.checking.calls import Form, RefusedError, as_torch
from suite.checking.diagnosis import Diagnosis, diagnose
from suite.checking.judge import Verdict, judge
from suite.checking.memory import address_range, first_difference, same_bits
from suite.core.phases import Phase
from suite.numerics import subnormals
from suite.problem.guard_bands import has_bands, intact
from suite.problem.outputs import joined

if TYPE_CHECKING:
    from suite.checking.problem import Problem
    from suite.frameworks.base import Adapter


UNFINISHED = "the result changed after the current stream had passed it: work on another stream"
MOST_REPEATS = 1000
"""Calls that are made again at most, with the inputs of the first."""
LEAST_REPEATS = 50
"""Repeated calls that may take longer than asked for."""


@dataclass(frozen=True)
class CheckResult:
    """What the calls showed. Errors are the larger ones of both draws; `reason` lists all that is wrong."""

    agrees: bool
    reason: str
    first_call_s: float
    error_ratio: float = math.inf
    """Largest error over its bound; above 1 is wrong."""
    max_ulp: float = math.inf
    max_rel: float = math.inf
    deterministic: str = ""
    """`yes` or `no`; empty if there were not two results to compare."""
    diagnosis: str = ""
    """`as if ...`, where a usual mistake explains the values that are wrong."""
    error_map: str = ""
    """Where they are wrong (`suite/checking/error_map.py`)."""

    @property
    def explanation(self) -> str:
        """The reason, and the diagnosis if there is one."""
        return "; ".join(filter(None, (self.reason, self.diagnosis)))


class Result(Protocol):
    """What one call returned, wherever the call was made."""

    early: torch.Tensor
    """A copy made in stream order as soon as the call returned."""
    ranges: tuple[tuple[int, int], ...]
    """The result's addresses; of several results, those of each."""
    alias: int | None
    """The position of the input in whose memory the result lies."""
    unfinished: bool
    """Whether the result and `early` differ once the device is idle."""
    spilled: bool
    """Whether the call wrote to the guard bands around the result."""

    def now(self) -> torch.Tensor:
        """What the result holds now. It is valid until the next call."""


class Caller(Protocol):
    """Makes the calls of the check, in this process or in another."""

    def call(self, draw: int, *, late: bool = False, again: bool = False) -> Result:
        """The result of one call on the inputs of `draw`, which arrive late if so asked. Raises `RefusedError`.

        The first call also loads and builds what it needs. `again`: it is one of many with the same inputs, and is not
        asked what it holds later.
        """


def check(
    load: Callable[[], Callable[..., Any]],
    adapter: Adapter,
    problem: Problem,
    *,
    claims_determinism: bool = False,
    repeat_s: float = 0.0,
    on_phase: Callable[[Phase], None] = lambda phase: None,
) -> CheckResult:
    """Load an implementation, call it in this process three times and again for `repeat_s` seconds, and judge its
    results.

    `load` returns the function; its time is part of the first call's. `on_phase` is called before each call and before
    the judging. What the implementation raises passes through.
    """
    adapter.forget_calls()
    caller = LocalCaller(load, adapter, problem)
    return check_calls(caller, problem, claims_determinism=claims_determinism, repeat_s=repeat_s, on_phase=on_phase)


def check_calls(
    caller: Caller,
    problem: Problem,
    *,
    claims_determinism: bool = False,
    repeat_s: float = 0.0,
    on_phase: Callable[[Phase], None] = lambda phase: None,
) -> CheckResult:
    """`check` with the calls that `caller` makes on the buffers of `problem`."""
    begin = perf_counter()
    on_phase(Phase.FIRST_CALL)
    try:
        first = caller.call(0)
        first_call_s, first_copy = perf_counter() - begin, first.early
        wrong = _misused_memory(problem, 0, first, ())
        settled = first.now().clone() if first.unfinished else first_copy

        on_phase(Phase.SECOND_CALL)
        second = caller.call(1, late=True)
        wrong |= _misused_memory(problem, 1, second, (first,))
        if not same_bits(first.now(), settled):
            wrong.setdefault("same buffer", "the second call wrote over the result of the first")
        on_phase(Phase.JUDGING)
        second_verdict = _judge(second.early, problem, 1)
        stale = not second_verdict.agrees and same_bits(first_copy, second.early)
        first_verdict = _judge(first_copy, problem, 0)
        diagnosis = _diagnosis([first_copy, second.early], [first_verdict, second_verdict], problem)
        second.early = first_copy.new_empty(0)  # a quarter of the memory that outputs take

        on_phase(Phase.THIRD_CALL)
        third_begin = perf_counter()
        third = caller.call(0)
        took = perf_counter() - third_begin
        wrong |= _misused_memory(problem, 0, third, (first, second))
        another = third.early if not same_bits(third.early, first_copy) else None
        del first, second, third, settled  # results are most of the memory that large cases take
        another = _farthest(caller, first_copy, another, took, repeat_s)
    except RefusedError as refused:
        return CheckResult(False, str(refused), perf_counter() - begin)
    on_phase(Phase.JUDGING)
    verdicts = [first_verdict, second_verdict]
    if another is not None:
        verdicts.append(_judge(another, problem, 0))
        if not verdicts[-1].agrees and first_verdict.agrees and second_verdict.agrees:
            diagnosis = _diagnosis([another], verdicts[-1:], problem)
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
        deterministic="yes" if another is None else "no",
        diagnosis=diagnosis.text,
        error_map=diagnosis.error_map,
    )


def _judge(output: torch.Tensor, problem: Problem, draw: int) -> Verdict:
    with subnormals.kept(problem.device):
        truth, shape, dtype = problem.truth(draw), problem.output_shape, problem.output_dtype
        return judge(output, truth, shape=shape, dtype=dtype, position=problem.position)


def _diagnosis(outputs: Sequence[torch.Tensor], verdicts: Sequence[Verdict], problem: Problem) -> Diagnosis:
    """What is wrong with the first wrong result, which is of draw 0 unless it is the second."""
    wrong = [
        (draw, output) for draw, (output, found) in enumerate(zip(outputs, verdicts, strict=True)) if not found.agrees
    ]
    if not wrong:
        return Diagnosis()
    (draw, output), *more = wrong
    with subnormals.kept(problem.device):
        return diagnose(output, draw, problem, beside=more[0][1] if more else None)


@dataclass
class LocalResult:
    """The result of a call in this process."""

    outputs: tuple[torch.Tensor, ...]
    early: torch.Tensor
    alias: int | None
    unfinished: bool
    spilled: bool

    def __post_init__(self) -> None:
        self.ranges = tuple(map(address_range, self.outputs))

    def now(self) -> torch.Tensor:
        return joined(self.outputs)


class LocalCaller:
    """Calls in this process. `problem` has the inputs to present and the form of the result."""

    def __init__(self, load: Callable[[], Callable[..., Any]], adapter: Adapter, problem: Problem) -> None:
        self._load, self._adapter, self._problem = load, adapter, problem
        self._function: Callable[..., Any] | None = None

    def call(self, draw: int, *, late: bool = False, again: bool = False) -> LocalResult:
        function = self._function = self._function or self._load()
        function = repeatable(function) if again else function
        problem = self._problem
        arguments = problem.op.arguments(problem.case)
        present = partial(problem.present, draw)
        return call_once(function, self._adapter, problem.buffers, arguments, problem, present, late=late)


def repeatable(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`; of a user's file without looking for side effects, where it has none."""
    found: Callable[..., Any] = getattr(function, "repeatable", function)
    return found


def call_once(
    function: Callable[..., Any],
    adapter: Adapter,
    buffers: Sequence[torch.Tensor],
    arguments: Mapping[str, Any],
    form: Form,
    present: Callable[[], None],
    *,
    late: bool,
) -> LocalResult:
    """One call of `function` on `buffers`, after `present` has filled them. Raises `RefusedError`."""
    with adapter.late_inputs(form.device) if late else contextlib.nullcontext():
        present()
        inputs = [adapter.to_native(buffer) for buffer in buffers]
        call = partial(function, *inputs, **arguments)
        result = adapter.poisoned(call, form.output_shapes, form.output_dtype, form.device)
        outputs = as_torch(result, adapter, form)
        copy = joined(outputs) if len(outputs) > 1 else outputs[0].clone()
    adapter.wait(result)
    return LocalResult(
        outputs,
        copy,
        _alias(outputs, buffers),
        unfinished=not same_bits(joined(outputs), copy),
        spilled=any(has_bands(output) and not intact(output) for output in outputs),
    )


def _alias(outputs: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor]) -> int | None:
    """The position of the last buffer in whose memory an output lies."""
    found = None
    for position, buffer in enumerate(buffers):
        storage = buffer.untyped_storage()
        memory = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        if any(_overlap(address_range(output), memory) for output in outputs):
            found = position
    return found


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def check_briefly(caller: Caller, problem: Problem, repeat_s: float) -> tuple[str, Diagnosis]:
    """What is wrong with the result of a call on draw 0, and of others within `repeat_s` seconds, and why; empty if
    nothing is.

    Raises `RefusedError` for a result of another form; what the implementation raises passes through.
    """
    begin = perf_counter()
    result = caller.call(0)
    wrong = _misused_memory(problem, 0, result, ())
    another = _farthest(caller, result.early, None, perf_counter() - begin, repeat_s)
    outputs = [each for each in (result.early, another) if each is not None]
    verdicts = [_judge(each, problem, 0) for each in outputs]
    found = [(each, verdict) for each, verdict in zip(outputs, verdicts, strict=True) if not verdict.agrees][:1]
    reasons = [f"{kind}: {what}" for kind, what in wrong.items()] + [verdict.reason for _, verdict in found]
    return "; ".join(reasons), _diagnosis([each for each, _ in found], [verdict for _, verdict in found], problem)


def _farthest(
    caller: Caller, first: torch.Tensor, another: torch.Tensor | None, took: float, seconds: float
) -> torch.Tensor | None:
    """Of further results of draw 0, `another` among them, the one that differs most from `first`; None if none does.

    Calls until `seconds` are over, or three times as long where a busy machine has made fewer than LEAST_REPEATS calls
    by then. took: the time of one call; one that would end later is not begun.
    """
    farthest, distance, begin = another, -1.0 if another is None else _distance(another, first), perf_counter()
    for count in range(MOST_REPEATS):
        now = perf_counter()
        if took > seconds or now - begin + took > (seconds if count >= LEAST_REPEATS else 3 * seconds):
            break
        result = caller.call(0, again=True)
        took = perf_counter() - now
        if result.unfinished:
            raise RefusedError(f"unfinished: {UNFINISHED}")
        if not same_bits(result.early, first) and (off := _distance(result.early, first)) > distance:
            farthest, distance = result.early, off
    return farthest


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference; infinite if there is a NaN."""
    return float((a.float() - b.float()).abs().nan_to_num(nan=math.inf).amax())


def _misused_memory(problem: Problem, draw: int, result: Result, earlier: Sequence[Result]) -> dict[str, str]:
    """What a call did to memory that is not its own, and a result that is not ready: kinds of refusal, each with its
    sentence."""
    wrong = {}
    if result.unfinished:
        wrong["unfinished"] = UNFINISHED
    if result.alias is not None:
        wrong["aliases input"] = f"the result lies in the memory of argument {result.alias + 1}"
    if result.spilled:
        wrong["wrote outside"] = "the call wrote to memory beside its result"
    changed = problem.changed(draw)
    beside = [position for position in changed if not intact(problem.buffers[position])]
    if beside:
        wrong["wrote outside"] = f"the call wrote to memory beside argument {beside[0] + 1}"
    elif changed:
        wrong["inputs changed"] = f"the call wrote to argument {changed[0] + 1}"
    ranges = [each for other in earlier for each in other.ranges]
    if any(_overlap(mine, other) for mine in result.ranges for other in ranges):
        wrong["same buffer"] = "two calls returned the same memory, while the first result was still in use"
    return wrong


def _disagreement(verdicts: Sequence[Verdict], stale: bool) -> list[str]:
    """The reason of the first result that is wrong, if one is: of draw 0, of draw 1, of draw 0 with other bits.

    `stale`: both draws gave the same bits.
    """
    first, second, *others = verdicts
    if not first.agrees:
        return [first.reason]
    if not second.agrees and stale:
        return [f"{second.reason}: the second call gave the first one's result: stale, or from inputs not yet there"]
    if not second.agrees:
        return [f"{second.reason} (in the second call, with other inputs)"]
    return [f"{each.reason} (in a later call, with the inputs of the first)" for each in others if not each.agrees]
