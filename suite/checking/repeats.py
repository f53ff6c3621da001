"""Repeats a call with the same inputs. A fault in one call of many shows as a result with other bits.

A result with the bits of a right one is right. Each of the first results with other bits is judged; of the further
ones, the one that differs most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter  # bound before any user's file can replace it

import torch

from suite.checking import memory
from suite.checking.calls import Caller, RefusedError
from suite.checking.judge import Verdict
from suite.checking.memory import MemoryUse, same_bits

MAX_REPEATS = 1000
"""Largest number of repeated calls on the inputs of the first call."""
LEAST_REPEATS = 32
"""Repetitions that even a slow call gets, within `Duration.least_s`: one fault in ten calls is found with a probability
of 1 - 0.9^32 = 0.96."""
JUDGED_REPEATS = 32
"""Results with other bits that are judged as they come."""


@dataclass(frozen=True)
class Duration:
    """Time for repeated calls.

    seconds: for all calls; a call that takes longer is not repeated. least_s: for the first LEAST_REPEATS calls,
    however long one takes.
    """

    seconds: float = 0.0
    least_s: float = 0.0

    def allows(self, count: int, spent_s: float, call_s: float) -> bool:
        """True if one more call, which takes `call_s`, may follow `count` calls that took `spent_s`."""
        limit_s = max(self.seconds, self.least_s) if count < LEAST_REPEATS else self.seconds
        return spent_s + call_s <= limit_s


CHECKED = Duration(0.004, 0.12)
"""The repeats of a checked call of an implementation of the tree."""
IN_ORDER = Duration(0.004)
"""The repeats of an interpreted or emulated kernel of the tree: one thread runs its programs in a fixed order, so that
no race shows in a further call."""
CHECKED_FILE = Duration(0.1, 3.0)
"""The repeats of a checked call of a user's file."""
TELLING_S, TELLING_FILE_S = 0.014, 0.35
"""Time for the repeated calls on all telling cases together, of an implementation of the tree and of a user's file."""


@dataclass
class Repeats:
    """Repeated calls: how many results are judged, the worst of those with other bits, and the verdict on it.

    verdicts: one, or none if all results have the bits of the first. shares: a call returned memory that is in use.
    """

    judged: int = 0
    worst: torch.Tensor | None = None
    verdicts: tuple[Verdict, ...] = ()
    shares: bool = False


def repeat(
    caller: Caller,
    first: torch.Tensor,
    another: torch.Tensor | None,
    call_s: float,
    duration: Duration,
    judge: Callable[[torch.Tensor], Verdict],
    held: Sequence[MemoryUse] = (),
) -> Repeats:
    """Repeat the call on draw 0, whose result is `first`.

    another: a result of draw 0 that is known to differ. call_s: the time of one call. judge: judges a result of draw 0.
    held: earlier results that are still in use; a call that returns their memory is the last.
    Raises `RefusedError` for a result that changes after its call.
    """
    found, spent_s, differing = Repeats(), 0.0, 0
    farthest, distance = None, -1.0

    def add(output: torch.Tensor) -> None:
        found.judged += 1
        verdict = judge(output)
        if not found.verdicts or verdict.error_ratio > found.verdicts[0].error_ratio:
            found.worst, found.verdicts = output, (verdict,)

    if another is not None:
        add(another)
    for count in range(MAX_REPEATS):
        if not duration.allows(count, spent_s, call_s):
            break
        begin = perf_counter()
        result = caller.call(0, again=True)
        call_s = perf_counter() - begin
        spent_s += call_s
        if result.unfinished:
            raise RefusedError(f"unfinished: {memory.UNFINISHED}")
        if memory.share(result, held):
            found.shares = True
            break
        if same_bits(result.early, first):
            found.judged += 1
            continue
        differing += 1
        if differing <= JUDGED_REPEATS:
            add(result.early)
        elif (off := _distance(result.early, first)) > distance:
            farthest, distance = result.early, off
    if farthest is not None:
        add(farthest)
    return found


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference of two results; infinite if one has a NaN."""
    return float((a.float() - b.float()).abs().nan_to_num(nan=math.inf).amax())
