"""A call of an implementation that is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """One implementation with its inputs bound."""

    name: str
    issue: Callable[[], object]
    """Starts the call and returns its result, which may not be ready."""
    wait: Callable[[Any], None]
    """Waits until that result is ready."""
    vendor: bool = False
    """True if a vendor's library computes it. vs_best is relative to the fastest of these."""
    capture: Callable[[Callable[[], object], int], Callable[[], None] | None] | None = None
    """Captures a number of calls into a CUDA graph and returns a function that replays it; None if it cannot."""

    in_turn: Callable[[int], Callable[[], object]] | None = None
    """Returns an `issue` whose calls rotate over at most that many sets of inputs, as many as exceed the cache."""

    def run(self) -> None:
        self.wait(self.issue())

    def spans(self, clock: Callable[[], int]) -> tuple[float, float]:
        """Nanoseconds until one call returns, and until its result is ready."""
        start = clock()
        result = self.issue()
        issued = clock()
        self.wait(result)
        return issued - start, clock() - start

    def loop(self, count: int, clock: Callable[[], int]) -> float:
        """Nanoseconds per call until `count` calls, issued one after the other, have returned."""
        start = clock()
        result = self.repeat(count)
        issued = clock()
        self.wait(result)
        return (issued - start) / count

    def repeat(self, count: int) -> object:
        """Issue `count` calls and return the result of the last."""
        result: object = None
        for _ in range(count):
            result = self.issue()
        return result
