"""Energy of one call, from the device's counter.

The counter integrates the board's own power sensor, which on some devices looks a part of the time only (A100 and H100:
arXiv 2312.02741). A steady load, as here, is what it measures best.
"""

from __future__ import annotations

import math
from collections.abc import Callable

WINDOW_NS = 90_000_000
BATCH_NS = 5_000_000
PATIENCE_NS = 1_000_000_000
"""How long to wait for the counter to move. It is refreshed every 20 to 100 ms on the devices seen."""


def joules_per_call(
    start: Callable[[int], Callable[[], None]],
    counter: Callable[[], int | None],
    clock: Callable[[], int],
    call_ns: float,
) -> float | None:
    """Calls back to back between two refreshes of the counter, 0.09 s apart at least; None if it does not move.

    `start(n)` issues n calls and returns what waits for them. The counter is read while a batch runs (a reading takes
    3 ms on an H200), so that the device never idles for it. Reading at a refresh, rather than at any moment, bounds the
    error by one batch (5 ms) at either end instead of by the counter's period.
    """
    batch = max(1, math.ceil(BATCH_NS / max(call_ns, 1.0)))
    calls = 0

    def until_refresh() -> int | None:
        nonlocal calls
        before, begin = counter(), clock()
        while before is not None and clock() - begin < PATIENCE_NS + 2 * call_ns:
            finish = start(batch)
            after = counter()
            finish()
            calls += batch
            if after != before:
                return after
        return None

    first = until_refresh()
    if first is None:
        return None
    calls, begin = 0, clock()
    while clock() - begin < WINDOW_NS:
        start(batch)()
        calls += batch
    last = until_refresh()
    return None if last is None else (last - first) / 1000 / calls
