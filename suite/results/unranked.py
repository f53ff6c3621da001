"""Says why a case has no fastest row."""

from __future__ import annotations

from collections.abc import Sequence

from suite.results.row import Row


def unranked_reason(timed: Sequence[Row], rivals: Sequence[Row]) -> str:
    """The reason of a case without a fastest row: `no time`, `one time`, `jax is noisy`, `all are noisy`.

    `timed` are its timed rows, `rivals` those that are noisy and may be faster than the first ranked row.
    """
    if not timed:
        return "no time"
    if len(timed) == 1:
        return "one time"
    if len({row.recorder for row in timed}) > 1:
        return "times of two recorders"
    return f"{rivals[0].implementation} is noisy" if rivals else "all are noisy"
