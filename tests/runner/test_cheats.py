"""Every cheat of the gallery in whole runs of `compare`, beside honest kernels, a plainly wrong one and torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import cheats
import pytest
from cheats import Cheat
from thinning import thorough_unless

from suite.hardware.device import Device, resolve
from suite.results.row import Row
from suite.runner import compare, plan
from suite.runner.options import Options
from suite.runner.selection import Selection

OTHERS = ("narrow", "memory")
"""Kinds of cheats that concern only the check, not the process that runs it."""
HONEST_SHARE = 0.5
"""A cheat without effect takes at least this share of an honest kernel's time, and has at most its inverse of the
ratio to the vendor, also on a machine with other users."""
TOGETHER = 16
"""The largest number of files of one run: each takes some seconds, and a test at most five minutes."""
RUNS = 3
"""A gain counts if it occurs in so many runs: on a machine with other users one run shows a gain by chance."""


def key(cheat: Cheat) -> tuple[str, str, str, str]:
    return cheat.operation, cheat.shape, cheat.dtype, cheat.inputs


def of_device(*, gpu: bool) -> list[Cheat]:
    return [each for each in cheats.cheats() if each.gpu == gpu and each.kind not in OTHERS]


def chosen(files: Sequence[Cheat]) -> list[Cheat]:
    """The cheats of `make test`: one of each kind, on the most usual case that has one, so that runs are few."""
    of_case, found = Counter(map(key, files)), {}
    for each in sorted(files, key=lambda each: -of_case[key(each)]):
        found.setdefault(each.kind, each)
    return [*found.values()]


def groups(files: Sequence[Cheat], *, thorough: bool = False) -> list[object]:
    """The files of each case, in runs of at most TOGETHER, with a readable id."""
    runs = []
    for case, group in groupby(sorted(files, key=key), key):
        of_case = list(group)
        for first in range(0, len(of_case), TOGETHER):
            some = of_case[first : first + TOGETHER]
            which = f", files {first + 1} to {first + len(some)}" if len(of_case) > TOGETHER else ""
            marks = thorough_unless(not thorough)
            runs.append(pytest.param(some, id=f"{'-'.join(case)}{which or f', {len(some)} files'}", marks=marks))
    return runs


def compared(files: Sequence[Cheat], device: Device) -> dict[str, Row]:
    """The rows of one run, by the names of their implementations."""
    operation, shape, dtype, inputs = key(files[0])
    selection = Selection(
        (operation,),
        shapes=(shape,),
        dtypes=(dtype,),
        precisions=("ieee",),
        inputs=() if inputs == "normal" else (inputs,),
        implementations=("with/*", "torch"),
        files=(cheats.HONEST, cheats.PLAINLY_WRONG, *(each.path for each in files)),
    )
    rows = compare.compare(plan.plan(selection, device), Options(device, max_noise=1.0))  # no more samples for noise
    return {row.implementation: row for row in rows}


def answered(cheat: Cheat, row: Row, honest: Row) -> bool:
    """True if the row is one of the answers that the file expects."""
    if row.status.value in cheat.expected or any(phrase in f"{row.reason} {row.remarks}" for phrase in cheat.expected):
        return True
    assert honest.device_us_low
    most = honest.vs_best_high or honest.vs_best  # few samples on a busy machine have no interval
    gains_nothing = row.device_us is None or row.device_us > HONEST_SHARE * honest.device_us_low
    gains_nothing &= row.vs_best is None or most is None or row.vs_best < most / HONEST_SHARE
    return "no effect" in cheat.expected and row.status == "ok" and gains_nothing


def judge(files: Sequence[Cheat], device: Device) -> None:
    """Compare the files. Those with a gain are compared again, and fail if each run shows a gain."""
    for _ in range(RUNS):
        said = unanswered(files, device)
        files = [each for each in files if each.name in said]
        if not files:
            return
        if any(row.status != "ok" for row in said.values()):
            break  # no gain, which chance could show, but an answer that no run may give
    assert {name: (row.status, row.device_us, row.vs_best, row.reason, row.remarks) for name, row in said.items()} == {}


def unanswered(files: Sequence[Cheat], device: Device) -> dict[str, Row]:
    """The rows of a run that are none of the answers that their files expect."""
    rows = compared(files, device)
    torch, honest, wrong = (rows[name] for name in ("torch", "with/honest", "with/plainly_wrong"))
    for row in torch, honest:
        assert (row.status, row.reason) == ("ok", ""), row
        assert row.device_us
    assert wrong.status == "wrong", "whatever ran before it"
    return {each.name: rows[each.row] for each in files if not answered(each, rows[each.row], honest)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "files" in metafunc.fixturenames:
        gpu = bool([*metafunc.definition.iter_markers("gpu")])
        files = of_device(gpu=gpu)
        few = files if gpu else chosen(files)
        more = [each for each in files if each not in few]
        metafunc.parametrize("files", [*groups(few), *groups(more, thorough=True)])


def test_fewer_cheats_have_every_kind() -> None:
    all_ = of_device(gpu=False)
    few = chosen(all_)
    assert {*few} < {*all_}
    assert {each.kind for each in few} == {each.kind for each in all_}


@pytest.mark.slow(seconds=60)
def test_every_cheat_is_refused_or_gains_nothing(files: list[Cheat]) -> None:
    judge(files, Device("cpu", name="CPU"))


@pytest.mark.gpu
def test_every_cheat_on_a_gpu_is_refused_or_gains_nothing(files: list[Cheat]) -> None:
    judge(files, resolve("cuda"))
