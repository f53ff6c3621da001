"""The timing of a brought file beside a vendor's implementation, which must be as fast there as without the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.worker.guest_process import RaisedError
from suite.worker.guests import SLOWER, Guests, GuiltyError
from suite.worker.protocol import TimeGuestRequest, TimingFailed

if TYPE_CHECKING:
    from suite.checking.problem import Problem
    from suite.timing import Timing
    from suite.timing.target import Target


@dataclass(frozen=True)
class Beside:
    """The times of a file, the memory that a call takes, and how it disturbs the vendor's implementation."""

    timing: Timing
    peak_bytes: int | None
    disturbance: str


Found = tuple["dict[str, Timing]", int | None] | TimingFailed | str
"""Times by name and memory; or what is wrong with the file; or, as a text, with the vendor's call beside it."""


def time_beside(
    guests: Guests, request: TimeGuestRequest, problem: Problem, local: Target, vendor_us_here: Callable[[], float]
) -> Beside | TimingFailed:
    """Time the file of `request` beside the vendor's implementation that it names.

    Where that takes longer there, a fresh process for the file is tried, between two measurements of the vendor's
    implementation in this process, by `vendor_us_here`. Where it still does, or fails, the file disturbs it.
    """
    name, vendor, vendor_us = request.implementation.name, request.vendor, request.vendor_us
    found = _time(guests, request, vendor, problem, local)
    if disturbance(found, vendor, vendor_us, guests.device.type):
        vendor_us = max(vendor_us, vendor_us_here())
        guests.drop(request.implementation)
        found = _time(guests, request, vendor, problem, local)
        vendor_us = max(vendor_us, vendor_us_here())
    disturbed = disturbance(found, vendor, vendor_us, guests.device.type)
    if disturbed and isinstance(found, str):
        guests.drop(request.implementation)
        found = _time(guests, request, "", problem, local)
    if isinstance(found, str):
        return TimingFailed("error", found, name)
    return found if isinstance(found, TimingFailed) else Beside(found[0][name], found[1], disturbed)


def _time(guests: Guests, request: TimeGuestRequest, vendor: str, problem: Problem, local: Target) -> Found:
    name = request.implementation.name
    try:
        return guests.time(request, vendor, problem, local)
    except GuiltyError as error:
        if name in error.guilty:
            reason = error.guilty[name]
            return TimingFailed("wrong", reason, name, {name: reason})
        return f"{vendor} is wrong beside it: {error}"
    except RaisedError as error:
        if vendor and guests.running == vendor:
            return f"{vendor} fails beside it: {error}"
        raise


def disturbance(found: Found, vendor: str, vendor_us: float, device_type: str) -> str:
    """What a file does to the vendor's implementation beside it; empty if nothing."""
    if isinstance(found, str):
        return found
    if isinstance(found, TimingFailed) or not vendor:
        return ""
    beside = found[0][vendor]
    if beside.device_us is None:
        return f"{vendor} has no time beside it: {beside.error}"
    low = beside.device_us_low or beside.device_us
    if beside.device_us <= SLOWER[device_type] * vendor_us or low <= vendor_us:
        return ""
    return f"{vendor} takes {beside.device_us:,.4g} us beside it, and {vendor_us:,.4g} us in a process without it"
