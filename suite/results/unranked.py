"""Says why a case has no fastest row."""

from __future__ import annotations

from suite.results.groups import Standing


def unranked_reason(found: Standing) -> str:
    """The reason, for a case without a winner: `no time`, `jax is noisy`, `all are noisy`."""
    if found.rivals:
        return f"{found.rivals[0].implementation} is noisy"
    timed = found.timed
    if not timed:
        return "no time"
    if len(timed) == 1:
        return "one time"
    if len({row.recorder for row in timed}) > 1:
        return "times of two recorders"
    noisy = [row.implementation for row in timed if row.noisy]
    return f"{noisy[0]} is noisy" if len(noisy) == 1 else "all are noisy" if len(noisy) == len(timed) else "noisy times"
