"""Says why a case has no fastest row."""

from __future__ import annotations

from collections.abc import Sequence

from suite.results.row import Row


def unranked_reason(timed: Sequence[Row]) -> str:
    """The reason, from the timed rows of a case without a fastest row: `no time`, `jax is noisy`, `all are noisy`."""
    if not timed:
        return "no time"
    if len(timed) == 1:
        return "one time"
    if len({row.recorder for row in timed}) > 1:
        return "times of two recorders"
    noisy = [row.implementation for row in timed if row.noisy]
    return f"{noisy[0]} is noisy" if len(noisy) == 1 else "all are noisy" if len(noisy) == len(timed) else "noisy times"
