"""Who broke a run: implementations are timed together, and one that fails must cost its own row only.

The implementation that was running when a worker died is a suspect, not the culprit: another one may have left the
process in ruins. The suspect is therefore timed alone. If it fails again it is out, and the others are timed without
it. If it succeeds, or nobody was running, all are timed together once more; after a second failure each is timed alone.

An implementation whose results were wrong while its inputs were intact is the culprit at once, and so is the first one
after whose call the inputs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """Why implementations that were timed together have no times."""

    status: str
    reason: str
    suspect: str | None
    """The implementation that was running; None if none was."""
    certain: bool = False
    """Whether the suspect is the culprit beyond doubt: it hung, or the system killed it for its memory."""
    from_outside: bool = False
    """Whether another process, or the system, has killed or stopped the worker."""
    worker_alive: bool = False
    """Whether the worker itself went on: the suspect raised an error or returned a wrong result."""
    guilty: Mapping[str, str] = field(default_factory=dict)
    """Implementations whose results were wrong although their inputs were intact, each with the reason."""


@dataclass
class Outcome(Generic[T]):
    """What became of the implementations that were to be timed together."""

    timings: Mapping[str, T] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    """The culprits, each with the failure that it caused."""
    given_up: Failure | None = None
    """Why those that are in neither have no times: no culprit was found."""


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
        guilty = [name for name in left if name in result.guilty]
        for name in guilty:
            outcome.failed[name] = replace(result, reason=result.guilty[name], suspect=name)
            left.remove(name)
        if guilty:
            if left:
                on_retry(result)
            continue
        culprits = [name for name in left if name == result.suspect]
        if culprits and not result.certain and len(left) > 1 and not isinstance(attempt(culprits), Failure):
            culprits = []
        if not culprits:
            unexplained += 1
            if unexplained == 2 and not result.worker_alive and len(left) > 1:
                culprits = [name for name in left if isinstance(attempt([name]), Failure)]
            if unexplained > 1 and (not culprits or len(culprits) == len(left)):
                outcome.given_up = result
                return outcome
        for name in culprits:
            outcome.failed[name] = result
            left.remove(name)
        if left:
            on_retry(result)
    return outcome
