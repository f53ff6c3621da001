"""Honest twins of cheats, and a kernel that writes to its inputs, timed by whole runs of `compare` on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cheats
import pytest

from suite.hardware.device import Device
from suite.results.row import Row
from suite.runner import compare, plan
from suite.runner.options import Options
from suite.runner.selection import Selection


def timed(operation: str, files: Sequence[Path], *implementations: str) -> dict[str, Row]:
    """The rows of one run, by the names of their implementations without `with/`."""
    cpu = Device("cpu", name="CPU")
    selection = Selection(
        (operation,),
        shapes=(cheats.SHAPES[operation],),
        dtypes=("float32",),
        precisions=("ieee",),
        implementations=("with/*", *implementations),
        files=tuple(files),
    )
    jobs = plan.plan(selection, cpu)
    rows = compare.compare(jobs, Options(cpu, max_noise=1.0))
    return {row.implementation.removeprefix("with/"): row for row in rows}


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("operation", [pytest.param("matmul", marks=pytest.mark.thorough), "vector_add"])
def test_honest_twins_are_timed(operation: str) -> None:
    twins = [twin for twin in cheats.twins() if twin.in_whole_runs and twin.operation == operation]
    assert twins
    rows = timed(operation, [twin.path for twin in twins])
    assert {name: (row.status, row.reason) for name, row in rows.items() if row.status != "ok"} == {}
    assert all(row.device_us for row in rows.values())


@pytest.mark.slow
def test_a_kernel_that_writes_to_its_inputs_when_timed_costs_its_own_row_only(tmp_path: Path) -> None:
    text = """import torch
calls = 0
def vector_add(a, b):
    global calls
    calls += not torch._C._len_torch_dispatch_stack()  # not those that are checked, in poisoned memory
    result = a + b
    if calls > 1:
        a[0] = 0.0
    return result
"""
    path = tmp_path / "writes.py"
    path.write_text(text, encoding="utf-8")
    rows = timed("vector_add", [path], "torch")
    assert (rows["writes"].status, rows["writes"].reason) == (
        "wrong",
        "wrong while timed: wrote to its inputs (argument 1)",
    )
    assert rows["torch"].status == "ok"
    assert rows["torch"].device_us
