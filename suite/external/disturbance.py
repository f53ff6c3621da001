"""Times a user's file beside a vendor's implementation, and tests whether the file slows the implementation down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.external.pool import ExternalPool, WrongResultsError
from suite.external.process import RaisedError
from suite.external.requests import NotTimed, TimeExternalRequest

if TYPE_CHECKING:
    from suite.checking.problem import Problem
    from suite.timing import Timing
    from suite.timing.target import Target

DISTURBED_RATIO = {"cpu": 1.25, "cuda": 1.05}
"""Largest allowed ratio, by device type: the vendor's time beside the file over the upper end of its interval without
users' files. A file with a larger ratio disturbs the implementation, unless the two intervals overlap."""
LEAST_CHANGE = 0.05
"""A change of the file's `vs_best` that counts. Beside a file that takes ten times as long, the vendor's implementation
follows idle time and colder caches, and takes somewhat longer for that alone."""
REPEATS = 2
"""Further measurements before a file is said to disturb: other programs may have disturbed the first ones."""


@dataclass(frozen=True)
class FileTiming:
    """The times of a file, the memory that a call takes, and how it disturbs the vendor's implementation.

    judged: the number of timed calls whose results were judged.
    """

    timing: Timing
    peak_bytes: int | None
    judged: int
    disturbance: str


Outcome = tuple["dict[str, Timing]", int | None, int] | NotTimed | str
"""Times by name, memory and number of judged calls; or the file's failure; or that of the vendor's call, as a text."""


def time_file(
    pool: ExternalPool,
    request: TimeExternalRequest,
    problem: Problem,
    local: Target,
    vendor_us_here: Callable[[], float],
) -> FileTiming | NotTimed:
    """Time the file of `request` beside the vendor's implementation that it names.

    If the vendor's implementation takes longer there, both are timed again in a fresh process for the file, between two
    measurements of the vendor's implementation in this process by `vendor_us_here`. If it takes longer each time, or
    fails, the file disturbs it.
    """
    name, vendor, vendor_us = request.implementation.name, request.vendor, request.vendor_us
    found = _time(pool, request, vendor, problem, local)
    for _ in range(REPEATS):
        if not disturbance(found, name, vendor, vendor_us, pool.device.type):
            break
        vendor_us = max(vendor_us, vendor_us_here())
        pool.drop(request.implementation)
        found = _time(pool, request, vendor, problem, local)
        vendor_us = max(vendor_us, vendor_us_here())
    disturbed = disturbance(found, name, vendor, vendor_us, pool.device.type)
    if disturbed and isinstance(found, str):
        pool.drop(request.implementation)
        found = _time(pool, request, "", problem, local)
    if isinstance(found, str):
        return NotTimed("error", found)
    return found if isinstance(found, NotTimed) else FileTiming(found[0][name], *found[1:], disturbed)


def _time(pool: ExternalPool, request: TimeExternalRequest, vendor: str, problem: Problem, local: Target) -> Outcome:
    name = request.implementation.name
    try:
        return pool.time(request, vendor, problem, local)
    except WrongResultsError as error:
        if name in error.reasons:
            return NotTimed("wrong", error.reasons[name])
        return f"{vendor} is wrong beside it: {error}"
    except RaisedError as error:
        if vendor and pool.running == vendor:
            return f"{vendor} fails beside it: {error}"
        raise


def disturbance(found: Outcome, name: str, vendor: str, vendor_us: float, device_type: str) -> str:
    """Describe how the file `name` disturbs the vendor's implementation beside it; empty if it does not."""
    if isinstance(found, str):
        return found
    if isinstance(found, NotTimed) or not vendor:
        return ""
    beside = found[0][vendor]
    if beside.device_us is None:
        return f"{vendor} has no time beside it: {beside.error}"
    low = beside.device_us_low or beside.device_us
    if beside.device_us <= DISTURBED_RATIO[device_type] * vendor_us or low <= vendor_us:
        return ""
    own_us = found[0][name].device_us
    if own_us is not None and beside.device_us - vendor_us < LEAST_CHANGE * own_us:
        return ""
    return f"{vendor} takes {beside.device_us:,.4g} us beside it, and {vendor_us:,.4g} us in a process without it"
