"""The definitions that all groups use: the type `Group`, lengths of spins, and issue functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from suite.doctor.timer_proof.checks import Check, Timings
from suite.doctor.timer_proof.expectations import recorded
from suite.doctor.timer_proof.work import Kit
from suite.timing import Call

CLOCK_STEP_MHZ = 15.0
"""SM clocks are multiples of this."""


@dataclass(frozen=True)
class Group:
    """Calls that are timed together, and the checks on them."""

    calls: tuple[Call, ...]
    checks: tuple[Check, ...]
    cache: str = "warm"
    budget_s: float = 1.0
    """Time for the samples of all calls together, in seconds."""


@dataclass(frozen=True)
class Spins:
    """Lengths of spins in cycles of the highest SM clock."""

    clock_mhz: float

    def cycles(self, us: float) -> int:
        """The number of cycles in `us` microseconds."""
        return round(us * self.clock_mhz)

    @property
    def clock_step(self) -> float:
        """One step of the SM clock, relative to the highest."""
        return CLOCK_STEP_MHZ / self.clock_mhz


def spin(kit: Kit, cycles: int) -> Callable[[], object]:
    """The function that issues one spin."""
    assert kit.spin is not None
    return partial(kit.spin, cycles)


def bandwidth_note(name: str, size: int, timings: Timings) -> str:
    """A note on the rate of the call `name`, which moves `size` bytes."""
    return f"{size / recorded(name, timings) / 1e3:,.0f} GB/s"


def mib(size: int) -> str:
    """A number of bytes as text, in MiB."""
    return f"{size / 2**20:,.0f} MiB"
