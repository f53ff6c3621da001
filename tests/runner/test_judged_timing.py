"""Honest twins of cheats, and a kernel that writes to its inputs, timed by whole runs of `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cheats
import pytest
from cheats import Cheat
from thinning import thorough_unless

from suite.hardware.device import Device, resolve
from suite.results.row import Row
from suite.runner import compare, plan
from suite.runner.options import Options
from suite.runner.selection import Selection

TOGETHER = 4
"""The largest number of files of one run."""
CPU = Device("cpu", name="CPU")


def timed(
    operation: str, shape: str, files: Sequence[Path], *implementations: str, device: Device = CPU
) -> dict[str, Row]:
    """The rows of one run, by the names of their implementations without `with/`."""
    selection = Selection(
        (operation,),
        shapes=(shape,),
        dtypes=("float32",),
        precisions=("ieee",),
        implementations=("with/*", *implementations),
        files=tuple(files),
    )
    rows = compare.compare(plan.plan(selection, device), Options(device, max_noise=1.0))
    return {row.implementation.removeprefix("with/"): row for row in rows}


def groups(twins: Sequence[Cheat]) -> list[object]:
    """The twins of each case, in runs of at most TOGETHER. `make test` on a GPU has the first run of vector_add."""
    runs = []
    for case in sorted({(twin.operation, twin.shape) for twin in twins}):
        of_case = [twin for twin in twins if (twin.operation, twin.shape) == case]
        parts = [of_case[first : first + TOGETHER] for first in range(0, len(of_case), TOGETHER)]
        runs += [
            pytest.param(
                part,
                id=f"{'-'.join(case)}-{number}",
                marks=thorough_unless(part[0].gpu and case[0] == "vector_add" and number == 0),
            )
            for number, part in enumerate(parts)
        ]
    return runs


def expect_times(twins: Sequence[Cheat], device: Device) -> None:
    rows = timed(twins[0].operation, twins[0].shape, [twin.path for twin in twins], device=device)
    assert {name: (row.status, row.reason) for name, row in rows.items() if row.status != "ok"} == {}
    assert all(row.device_us for row in rows.values())


@pytest.mark.slow(seconds=20)  # test_cheats.py times an honest file too
@pytest.mark.parametrize("twins", groups([twin for twin in cheats.twins() if twin.in_whole_runs]))
def test_honest_twins_are_timed(twins: list[Cheat]) -> None:
    expect_times(twins, CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("twins", groups([twin for twin in cheats.twins() if twin.gpu]))
def test_honest_twins_are_timed_on_a_gpu(twins: list[Cheat]) -> None:
    expect_times(twins, resolve("cuda"))


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
    rows = timed("vector_add", cheats.SHAPES["vector_add"], [path], "torch")
    assert (rows["writes"].status, rows["writes"].reason) == (
        "wrong",
        "wrong while timed: wrote to its inputs (argument 1)",
    )
    assert rows["torch"].status == "ok"
    assert rows["torch"].device_us
