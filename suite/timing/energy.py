"""Energy of one call, from the device's counter.

The counter integrates the board's own power sensor, which on some devices looks a part of the time only (A100 and H100:
arXiv 2312.02741). A steady load, as here, is what it measures best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

WINDOW_NS = 60_000_000
BATCH_NS = 5_000_000
PATIENCE_NS = 1_000_000_000
"""How long to wait for the counter to move. It is refreshed every 20 to 100 ms on the devices seen."""


Start = Callable[[int], Callable[[], None]]
"""Issues a number of calls and returns what waits for them."""
Counter = Callable[[], int | None]
Clock = Callable[[], int]


def joules_per_call(loads: Sequence[tuple[Start, float]], counter: Counter, clock: Clock) -> list[float | None]:
    """Energy of one call of each load: the power between two refreshes of the counter, 0.06 s apart at least, in which
    its calls run back to back, times the time of one; None if the counter does not move. A load is what starts calls,
    and the time of one in ns.

    Reading at a refresh, rather than at any moment, bounds the error by half a batch (2.5 ms) at either end instead of
    by the counter's period: a refresh is known to have come between two readings, and is taken to be in the middle. The
    refresh that ends one load's window begins the next one's, unless calls are too long to tell when it was; what ran
    between the two is of the load before, whose power is known by then. The counter is read while a batch runs (that
    takes 3 ms on an H200), so the device never idles.
    """
    found: list[float | None] = []
    first: int | None = None
    since_ns, watts_before = 0.0, None
    for start, call_ns in loads:
        batch = max(1, math.ceil(BATCH_NS / max(call_ns, 1.0)))
        if first is None:
            first, _, since_ns, _ = _until_refresh(start, batch, counter, clock)
            watts_before = None
            if first is None:
                return found + [None] * (len(loads) - len(found))
        calls, begin = 0, clock()
        while clock() - begin < WINDOW_NS:
            start(batch)()
            calls += batch
        last, more, last_since_ns, uncertain_ns = _until_refresh(start, batch, counter, clock)
        if last is None:
            found.append(None)
            first = None
            continue
        took_ns = clock() - begin
        nanojoules = (last - first) * 1e6
        if watts_before is None:  # what ran since the refresh was this load's own
            watts = nanojoules / (since_ns + took_ns - last_since_ns)
        else:
            watts = (nanojoules - watts_before * since_ns) / (took_ns - last_since_ns)
        found.append(watts * took_ns / 1e9 / (calls + more))
        since_ns, watts_before = last_since_ns, watts
        first = last if uncertain_ns <= BATCH_NS else None
    return found


def _until_refresh(start: Start, batch: int, counter: Counter, clock: Clock) -> tuple[int | None, int, float, float]:
    """Batches until the counter moves: its new value (None if it never does), the calls made, how long ago that was,
    and by how much this may be wrong, in ns. It moved between two readings."""
    calls, before, begin = 0, counter(), clock()
    now = read = begin
    while before is not None and (calls == 0 or now - begin < PATIENCE_NS):
        finish = start(batch)
        after = counter()
        previous, read = read, clock()
        finish()
        calls, now = calls + batch, clock()
        if after != before:
            return after, calls, now - (previous + read) / 2, (read - previous) / 2
    return None, calls, 0.0, 0.0
