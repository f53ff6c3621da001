"""Checks that eviction makes data as cold as data that was never accessed."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from suite.doctor.timer_proof.checks import Check, share
from suite.doctor.timer_proof.expectations import recorded
from suite.doctor.timer_proof.groups.group import Group, mib
from suite.doctor.timer_proof.work import Arena
from suite.timing import Call

IN_TURN, AGAIN = "torch: read, in turn", "torch: read, again"


def _pieces(arena: Arena, l2_bytes: int) -> Any:
    """16 vectors, each half as large as the cache. Read in turn, a vector is read again after seven cache sizes of
    other data."""
    words = min(l2_bytes // 8, arena.elements // 16)
    return arena.x[: 16 * words].view(16, words)


def reference(arena: Arena, l2_bytes: int) -> Group:
    """Reads of cold data without eviction, and of warm data. It has no checks; `evicted` compares with its times."""
    import torch

    pieces, sums = _pieces(arena, l2_bytes), torch.empty((), device=arena.device)
    turns = itertools.cycle(pieces.unbind())
    calls = (
        Call(IN_TURN, lambda: torch.sum(next(turns), dim=0, out=sums), arena.wait),
        Call(AGAIN, partial(torch.sum, pieces[0], dim=0, out=sums), arena.wait),
    )
    return Group(calls, ())


def evicted(arena: Arena, l2_bytes: int) -> Group:
    """Reads of data that the timer evicts before every sample."""
    import torch

    piece, sums = _pieces(arena, l2_bytes)[0], torch.empty((), device=arena.device)
    name = "torch: read, evicted"
    check = Check(
        "torch",
        f"sum of {mib(4 * piece.numel())}, the cache evicted",
        name,
        partial(recorded, IN_TURN),
        "one of 16 such pieces read in turn; 10%",
        down=share(0.1),
        up=share(0.1),
        activities=None,
        note=lambda timings: f"{recorded(AGAIN, timings):.2f} us when read again and again",
    )
    return Group((Call(name, partial(torch.sum, piece, dim=0, out=sums), arena.wait),), (check,), cache="cold")
