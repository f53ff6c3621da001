"""Finds the implementation that breaks a timed run, so that its failure costs only its own row.

The implementation that was running when a worker died is only a suspect: an earlier one may have damaged the process.

1. The suspect is timed alone. If it fails again, it is the failing implementation; the others are timed without it.
2. If it succeeds, or none was running, all are timed together once more. After a second failure each is timed alone.

Two implementations fail at once, without a second attempt: one with wrong results from intact inputs, and the first one
whose call changed the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """The reason why implementations that were timed together have no times."""

    status: str
    reason: str
    suspect: str | None
    """The implementation that was running; None if none was."""
    certain: bool = False
    """True if the suspect is certainly the failing one: it hung, or the system killed it for its memory."""
    from_outside: bool = False
    """True if another process, or the system, has killed or stopped the worker."""
    worker_alive: bool = False
    """True if the worker itself goes on: the suspect raised an error or returned a wrong result."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Implementations with wrong results from intact inputs, each with the reason."""


@dataclass
class Outcome(Generic[T]):
    """The outcome for implementations that were to be timed together."""

    timings: Mapping[str, T] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    """The failing implementations, each with the failure that it caused."""
    given_up: Failure | None = None
    """The failure of the implementations in neither mapping. No single failing one was found among them."""


Attempt = Callable[[Sequence[str]], "Mapping[str, T] | Failure"]


def time_together(
    names: Sequence[str], attempt: Attempt[T], on_retry: Callable[[Failure], None] = lambda failure: None
) -> Outcome[T]:
    """Time the implementations `names` together, without those that break the run.

    `attempt` times some of them together; it returns their timings by name, or a `Failure`. `on_retry` is called
    before all that are left are tried again.
    """
    left, outcome, unexplained = list(names), Outcome[T](), 0
    while left:
        result = attempt(left)
        if not isinstance(result, Failure):
            outcome.timings = result
            return outcome
        wrong = [name for name in left if name in result.wrong]
        for name in wrong:
            outcome.failed[name] = replace(result, reason=result.wrong[name], suspect=name)
            left.remove(name)
        if wrong:
            if left:
                on_retry(result)
            continue
        failing = [name for name in left if name == result.suspect]
        if failing and not result.certain and len(left) > 1 and not isinstance(attempt(failing), Failure):
            failing = []
        if not failing:
            unexplained += 1
            if unexplained == 2 and not result.worker_alive and len(left) > 1:
                failing = [name for name in left if isinstance(attempt([name]), Failure)]
            if unexplained > 1 and (not failing or len(failing) == len(left)):
                outcome.given_up = result
                return outcome
        for name in failing:
            outcome.failed[name] = result
            left.remove(name)
        if left:
            on_retry(result)
    return outcome
