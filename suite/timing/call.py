"""A call that is timed."""

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
    """Returns when that result is ready."""
    vendor: bool = False
    """Whether a vendor's library computes it: vs_best is relative to the fastest of these."""
    capture: Callable[[Callable[[], object], int], Callable[[], None] | None] | None = None
    """Captures so many calls into a CUDA graph and returns what replays it; None where that is not possible."""

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
        """Nanoseconds until each of several calls returns, which are issued one after the other."""
        start = clock()
        result = self.repeat(count)
        issued = clock()
        self.wait(result)
        return (issued - start) / count

    def repeat(self, count: int) -> object:
        """Issue several calls; the result of the last."""
        result: object = None
        for _ in range(count):
            result = self.issue()
        return result
