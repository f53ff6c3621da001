"""Energy of one call, from the device's counter.

The counter integrates the board's own power sensor, which on some devices looks a part of the time only (A100 and H100:
arXiv 2312.02741). A steady load, as here, is what it measures best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

WINDOW_NS = 90_000_000
BATCH_NS = 5_000_000
PATIENCE_NS = 1_000_000_000
"""How long to wait for the counter to move. It is refreshed every 20 to 100 ms on the devices seen."""


Start = Callable[[int], Callable[[], None]]
"""Issues a number of calls and returns what waits for them."""
Counter = Callable[[], int | None]
Clock = Callable[[], int]


def joules_per_call(loads: Sequence[tuple[Start, float]], counter: Counter, clock: Clock) -> list[float | None]:
    """Energy of one call of each load: of calls back to back between two refreshes of the counter, 0.09 s apart at
    least; None if it does not move. A load is what starts calls, and the time of one in ns.

    Reading at a refresh, rather than at any moment, bounds the error by one batch (5 ms) at either end instead of by
    the counter's period; at the beginning it is a batch of the load before. The refresh that ends one load's window
    begins the next one's, unless calls are too long to tell when it was. The counter is read while a batch runs (that
    takes 3 ms on an H200), so the device never idles.
    """
    found: list[float | None] = []
    first: int | None = None
    for start, call_ns in loads:
        batch = max(1, math.ceil(BATCH_NS / max(call_ns, 1.0)))
        if first is None:
            first, _, _ = _until_refresh(start, batch, counter, clock)
            if first is None:
                return found + [None] * (len(loads) - len(found))
        calls, begin = 0, clock()
        while clock() - begin < WINDOW_NS:
            start(batch)()
            calls += batch
        last, more, uncertain_ns = _until_refresh(start, batch, counter, clock)
        found.append(None if last is None else (last - first) / 1000 / (calls + more))
        first = last if uncertain_ns <= 2 * BATCH_NS else None
    return found


def _until_refresh(start: Start, batch: int, counter: Counter, clock: Clock) -> tuple[int | None, int, int]:
    """Batches until the counter moves: its new value (None if it never does), the calls made, and the length of the
    last batch in ns, in which it moved."""
    calls, before, begin = 0, counter(), clock()
    now = begin
    while before is not None and (calls == 0 or now - begin < PATIENCE_NS):
        finish = start(batch)
        after = counter()
        finish()
        calls, previous, now = calls + batch, now, clock()
        if after != before:
            return after, calls, now - previous
    return None, calls, now - begin
