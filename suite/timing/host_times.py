"""Times of calls as the host sees them: in a steady loop, to an idle device, and replayed from a CUDA graph.

A loop is steady while no call waits for the device: its calls are so few that the stream's queue does not fill.
"""

from __future__ import annotations

from collections.abc import Callable

from suite.timing.call import Call
from suite.timing.stats import median

LATENCY_CALLS, LATENCY_NS = 10, 10_000_000
"""Latency is the median of as many calls as fit into LATENCY_NS, at most LATENCY_CALLS."""
LOOP_CALLS, LOOP_NS = 50, 1_000_000
"""A loop has as many calls as take LOOP_NS, at most LOOP_CALLS."""
LOOPS, REPLAYS = 9, 9
"""Loops, and replays of a graph with as many calls as a loop; the median counts."""


def idle_us(call: Call, least: int, clock: Callable[[], int], prepare: Callable[[], None]) -> tuple[float, float]:
    """Median times of at least `least` calls to a device that `prepare` leaves idle: until a call returns, and until
    its result is ready."""
    issued: list[float] = []
    ready: list[float] = []
    begin = clock()
    while len(ready) < LATENCY_CALLS and (len(ready) < least or clock() - begin <= LATENCY_NS):
        prepare()
        spans = call.spans(clock)
        issued.append(spans[0] / 1000)
        ready.append(spans[1] / 1000)
    return median(issued), median(ready)


def loop_calls(cost_ns: float) -> int:
    """Calls of a loop, of calls that take `cost_ns`; 1 for those whose loop would not be steady."""
    return max(1, min(LOOP_CALLS, int(LOOP_NS / cost_ns)))


def dispatch_us(call: Call, count: int, clock: Callable[[], int], synchronize: Callable[[], None]) -> float:
    """Median time until a call of a loop of `count` returns. Each loop begins on an idle device."""
    found = []
    for _ in range(LOOPS):
        synchronize()
        found.append(call.loop(count, clock) / 1000)
    return median(found)


def graph_us(call: Call, count: int, clock: Callable[[], int], synchronize: Callable[[], None]) -> float | None:
    """Median time of a call in a CUDA graph of `count`: that of the replay until the device is idle, over the count.

    None for a call that cannot be captured.
    """
    replay = call.capture(call.issue, count) if call.capture is not None else None
    if replay is None:
        return None
    found = []
    for _ in range(1 + REPLAYS):  # the first one uploads the graph
        synchronize()
        begin = clock()
        replay()
        synchronize()
        found.append((clock() - begin) / 1000 / count)
    return median(found[1:])
