"""Computes `vs_peer`: the speed of each row relative to the best public kernel library."""

from __future__ import annotations

from collections.abc import Sequence

from suite.results.groups import standing
from suite.results.row import Row, Status


def set_vs_peer(rows: Sequence[Row]) -> None:
    """Set `vs_peer` of the rows of one case on one device, in place. It is None if no peer was timed.

    For rows that were timed in turns it is the quotient of two `vs_best`, which drifting clocks do not change.
    """
    timed = [row for row in rows if row.status is Status.OK and row.device_us]
    peers = [row for row in timed if row.peer]
    ranked = standing(rows).best(lambda row: bool(row.peer)) if rows else None
    best = ranked or min(peers, key=lambda row: row.device_us or 0.0, default=None)
    for row in rows:
        row.vs_peer = None
        if best is None or not best.device_us or row not in timed or not row.device_us:
            continue
        in_turns = bool(row.vs_best and best.vs_best)
        row.vs_peer = (row.vs_best or 1.0) / (best.vs_best or 1.0) if in_turns else best.device_us / row.device_us
