"""How the rows of a case stand to the best public kernel library: `vs_peer`."""

from __future__ import annotations

from collections.abc import Sequence

from suite.results.row import Row, Status


def against_peers(rows: Sequence[Row]) -> None:
    """Set, in place, `vs_peer` of the rows of one case on one device; None where no peer was timed.

    Ratios of rows that were timed in turns are those of `vs_best`, which drift of the clocks does not move.
    """
    timed = [row for row in rows if row.status is Status.OK and row.device_us]
    peers = [row for row in timed if row.peer and not row.noisy] or [row for row in timed if row.peer]
    best = min(peers, key=lambda row: row.device_us or 0.0, default=None)
    for row in rows:
        row.vs_peer = None
        if best is None or not best.device_us or row not in timed or not row.device_us:
            continue
        in_turns = bool(row.vs_best and best.vs_best)
        row.vs_peer = (row.vs_best or 1.0) / (best.vs_best or 1.0) if in_turns else best.device_us / row.device_us
