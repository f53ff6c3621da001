"""Measures calls by the host's clock: in a steady loop, to an idle device, and replayed from a CUDA graph.

A loop is steady if no call waits for the device: it has so few calls that the stream's queue does not fill.
"""

from __future__ import annotations

from collections.abc import Callable

from suite.timing.call import Call
from suite.timing.stats import median

LATENCY_CALLS, LATENCY_NS = 10, 10_000_000
"""Latency is the median of the calls that fit into LATENCY_NS, at most LATENCY_CALLS."""
LOOP_CALLS, LOOP_NS = 50, 1_000_000
"""A loop takes LOOP_NS and has at most LOOP_CALLS calls."""
LOOPS, REPLAYS = 9, 9
"""The number of loops, and of replays of a graph; both have the same number of calls. The median counts."""


def idle_us(call: Call, min_calls: int, clock: Callable[[], int], prepare: Callable[[], None]) -> tuple[float, float]:
    """Median times, in us, until a call returns and until its result is ready.

    `prepare` leaves the device idle before each call. At least `min_calls` calls are made.
    """
    issued: list[float] = []
    ready: list[float] = []
    begin = clock()
    while len(ready) < LATENCY_CALLS and (len(ready) < min_calls or clock() - begin <= LATENCY_NS):
        prepare()
        spans = call.spans(clock)
        issued.append(spans[0] / 1000)
        ready.append(spans[1] / 1000)
    return median(issued), median(ready)


def loop_calls(cost_ns: float) -> int:
    """The number of calls in a loop if one takes `cost_ns`; 1 if such a loop would not be steady."""
    return max(1, min(LOOP_CALLS, int(LOOP_NS / cost_ns)))


def dispatch_us(call: Call, count: int, clock: Callable[[], int], synchronize: Callable[[], None]) -> float:
    """Median time, in us, until a call returns, in loops of `count` calls. Each loop begins on an idle device."""
    found = []
    for _ in range(LOOPS):
        synchronize()
        found.append(call.loop(count, clock) / 1000)
    return median(found)


def graph_us(
    call: Call, count: int, clock: Callable[[], int], synchronize: Callable[[], None], evict: Callable[[], None] | None
) -> float | None:
    """Median time, in us, of a call in a CUDA graph of `count` calls; None if the call cannot be captured.

    This is the time from the start of a replay until the device is idle, divided by `count`. With `evict`, the cache is
    cold for each call: it is evicted before a replay, and calls of a replay rotate over sets of inputs.
    """
    if call.capture is None or (evict is not None and call.in_turn is None):
        return None
    issue = call.in_turn(count) if evict is not None and call.in_turn is not None else call.issue
    replay = call.capture(issue, count)
    if replay is None:
        return None
    found = []
    for _ in range(1 + REPLAYS):  # the first one uploads the graph
        if evict is not None:
            evict()
        synchronize()
        begin = clock()
        replay()
        synchronize()
        found.append((clock() - begin) / 1000 / count)
    return median(found[1:])
