"""The request to time a user's file, and the reply without times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from suite.core.least import NOTHING_MORE, Least
from suite.implementations.identity import ExternalReference
from suite.problem.case import Case
from suite.processes.limits import FIRST_CALL_S
from suite.results.noise import MAX_NOISE


@dataclass(frozen=True)
class TimeExternalRequest:
    """Time a user's file that agrees, in its external process, beside a vendor's implementation there.

    `vendor` is that implementation, empty if there is none. `vendor_us` is the upper end of the interval of its device
    time in a process without users' files.
    """

    case: Case
    implementation: ExternalReference
    seed: int
    cache: str
    transfers: bool
    vendor: str
    vendor_us: float
    max_noise: float = MAX_NOISE
    least: Least = NOTHING_MORE
    timeout_s: float = FIRST_CALL_S


@dataclass(frozen=True)
class NotTimed:
    """The reason why a user's file has no times: it failed, or its results were wrong while timed."""

    status: Literal["error", "wrong"]
    reason: str
