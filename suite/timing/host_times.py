"""Times of calls as the host sees them: in a steady loop, to an idle device, and replayed from a CUDA graph.

A loop is steady while no call waits for the device: its calls are so few that the stream's queue does not fill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from suite.timing.stats import median

if TYPE_CHECKING:
    from suite.timing.sampling import Call

LOOP_CALLS, LOOP_NS = 50, 1_000_000
"""A loop has as many calls as take LOOP_NS, at most LOOP_CALLS."""
LOOPS, REPLAYS = 9, 9
"""Loops, and replays of a graph with as many calls as a loop; the median counts."""


def loop_calls(cost_ns: float) -> int:
    """Calls of a loop, of calls that take `cost_ns`."""
    return max(1, min(LOOP_CALLS, int(LOOP_NS / cost_ns))) if cost_ns > 0 else LOOP_CALLS


def dispatch_us(call: Call, cost_ns: float, clock: Callable[[], int], synchronize: Callable[[], None]) -> float:
    """Median time until a call of a loop returns. Each loop begins on an idle device."""
    count = loop_calls(cost_ns)
    found = []
    for _ in range(LOOPS if count > 1 else LOOPS // 3):
        synchronize()
        found.append(call.loop(count, clock) / 1000)
    return median(found)


def graph_us(call: Call, cost_ns: float, clock: Callable[[], int], synchronize: Callable[[], None]) -> float | None:
    """Median time of a call in a CUDA graph of as many calls as a loop has: that of the replay over their number.

    None for a call that cannot be captured, and for one longer than LOOP_NS, which hides the cost of its launch.
    """
    if call.capture is None or cost_ns > LOOP_NS:
        return None
    count = loop_calls(cost_ns)
    replay = call.capture(call.issue, count)
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
