"""A rank that crashes, hangs, disagrees or runs out of memory costs its row, which names it; the next case runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tries import passes_once

from suite.hardware.device import resolve
from suite.processes import tree
from suite.results.row import Row, Status
from suite.runner.compare import compare
from suite.runner.options import Options
from suite.runner.plan import plan
from suite.runner.selection import Selection

FILE = """
import os, signal, time
import torch
import torch.distributed as dist

def all_reduce(x, *, group):
    out, rank, fault = x.clone(), group.rank(), x.numel() - 1000
    if fault == 1 and rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == 2 and rank == 1:
        time.sleep(1000)
    if fault == 3 and rank == 1:
        torch.empty(10**15)
    if fault == 4:
        raise KeyError("k")
    dist.all_reduce(out, group=group)
    if fault == 5 and rank == 1:
        out[7] += 1
    if fault == 6:
        out /= 2
    return out
"""
CRASH, HANG, MEMORY, RAISED, ONE_WRONG, ALL_WRONG, RIGHT = range(1001, 1008)
HANG_S = (3.0, 40.0)
"""Limits of a call: the first is long enough on a free machine, the second on a busy one."""


def rows_of(path: Path, limit_s: float) -> dict[int, Row]:
    """The rows of the file at each size. No process is left behind."""
    path.write_text(FILE)
    sizes = f"N={','.join(map(str, range(CRASH, RIGHT + 1)))}"
    selection = Selection(
        ("all_reduce",), ("torch",), excluded=("torch",), dtypes=("float32",), shapes=(sizes,), inputs=("none",),
        files=(path,), ranks=2,
    )  # fmt: skip
    device, before = resolve("cpu"), set(tree.descendants(os.getpid()))
    rows = compare(plan(selection, device), Options(device, timed=False, timeout_s=limit_s))
    deadline = time.monotonic() + 60
    while (left := set(tree.descendants(os.getpid())) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    return dict(zip(range(CRASH, RIGHT + 1), rows, strict=True))


@pytest.mark.slow(seconds=40)
def test_a_fault_costs_its_row_which_names_the_rank(tmp_path: Path) -> None:
    def each_costs_its_row(limit_s: float) -> None:
        rows = rows_of(tmp_path / "mine.py", limit_s)
        assert [(rows[n].status, rows[n].ranks) for n in rows] == [
            (Status.ERROR, 2), (Status.TIMEOUT, 2), (Status.ERROR, 2), (Status.ERROR, 2), (Status.WRONG, 2),
            (Status.WRONG, 2), (Status.OK, 2),
        ]  # fmt: skip
        assert rows[CRASH].reason == "rank 1 was killed by SIGSEGV at mine.py:9; the other ranks were ended"
        assert "rank 1 is at mine.py:11, rank 0 waits at mine.py:16" in rows[HANG].reason
        assert rows[MEMORY].reason.startswith("rank 1: RuntimeError: ")
        assert "memory" in rows[MEMORY].reason
        assert rows[RAISED].reason == "KeyError: 'k' (mine.py:15) (on all 2 ranks)"
        assert rows[ONE_WRONG].reason.startswith("rank 1: value: at [7] got ")
        assert "rank 0" not in rows[ONE_WRONG].reason
        assert rows[ALL_WRONG].reason.startswith("value: at ")
        assert rows[ALL_WRONG].reason.endswith("(on all 2 ranks)")
        assert (rows[RIGHT].reason, rows[RIGHT].case) == ("", "N=1007,ranks=2")

    passes_once(each_costs_its_row, HANG_S)
