"""Measures the energy of one call with the device's energy counter.

The counter integrates the board's power sensor. Some devices (A100, H100: arXiv 2312.02741) sample that sensor only
part of the time. This matters least for a steady load, such as the one here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

WINDOW_NS = 60_000_000
"""The shortest time between the two counter updates of one measurement."""
BATCH_NS = 5_000_000
"""The duration of a batch of calls."""
UPDATE_TIMEOUT_NS = 1_000_000_000
"""Time limit for an update of the counter. Measured devices update it every 20 to 100 ms."""


Start = Callable[[int], Callable[[], None]]
"""Issues a number of calls and returns a function that waits for them."""
Counter = Callable[[], int | None]
Clock = Callable[[], int]


def joules_per_call(loads: Sequence[tuple[Start, float]], counter: Counter, clock: Clock) -> list[float | None]:
    """Energy in joules of one call of each load; None for a load during which the counter does not move.

    `loads` are pairs of a function that starts calls and the time of one call in ns. `counter` reads millijoules,
    `clock` nanoseconds. The calls of a load run back to back. The power of a load is the difference of the counter
    between two updates, at least 0.06 s apart, divided by the time between them. The energy of a call is that power
    times the time of one call.

    An update happens between two readings and is assumed to be in the middle between them. This bounds the error at
    either end by half a batch (2.5 ms) rather than by the counter's period. The update that ends the window of one load
    begins the window of the next, unless the calls are too long to locate it. The energy between that update and the
    start of the next load belongs to the earlier load, at its measured power. The counter is read while a batch runs
    (3 ms on an H200), so that the device is never idle.
    """
    found: list[float | None] = []
    first: int | None = None
    since_ns, watts_before = 0.0, None
    for start, call_ns in loads:
        batch = max(1, math.ceil(BATCH_NS / max(call_ns, 1.0)))
        if first is None:
            first, _, since_ns, _ = _until_update(start, batch, counter, clock)
            watts_before = None
            if first is None:
                return found + [None] * (len(loads) - len(found))
        calls, begin = 0, clock()
        while clock() - begin < WINDOW_NS:
            start(batch)()
            calls += batch
        last, more, last_since_ns, uncertain_ns = _until_update(start, batch, counter, clock)
        if last is None:
            found.append(None)
            first = None
            continue
        took_ns = clock() - begin
        nanojoules = (last - first) * 1e6
        if watts_before is None:  # all calls since the update belong to this load
            watts = nanojoules / (since_ns + took_ns - last_since_ns)
        else:
            watts = (nanojoules - watts_before * since_ns) / (took_ns - last_since_ns)
        found.append(watts * took_ns / 1e9 / (calls + more))
        since_ns, watts_before = last_since_ns, watts
        first = last if uncertain_ns <= BATCH_NS else None
    return found


def _until_update(start: Start, batch: int, counter: Counter, clock: Clock) -> tuple[int | None, int, float, float]:
    """Run batches until the counter moves.

    Returns its new value (None if it does not move), the number of calls, the time since the update and the uncertainty
    of that time, both in ns.
    """
    calls, before, begin = 0, counter(), clock()
    now = read = begin
    while before is not None and (calls == 0 or now - begin < UPDATE_TIMEOUT_NS):
        finish = start(batch)
        after = counter()
        previous, read = read, clock()
        finish()
        calls, now = calls + batch, clock()
        if after != before:
            return after, calls, now - (previous + read) / 2, (read - previous) / 2
    return None, calls, 0.0, 0.0
