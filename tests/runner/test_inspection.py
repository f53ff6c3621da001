"""`--profile` and `--dump`: the rows that are inspected, and the columns that they get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_worker import AGREES, H200, Recorded, time_of

from suite.core.errors import UsageError
from suite.hardware.device import Device
from suite.profiling import child, nsight
from suite.profiling.child import OnceError
from suite.profiling.nsight import NsightError
from suite.profiling.once import Once
from suite.results.row import Bound, Row, Status
from suite.runner import inspection
from suite.runner.options import Options

Compare = Callable[..., list[Row]]
NAMES = ("torch", "triton")
CPU = Device("cpu", name="a CPU")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """All agree, and take 100 us."""
    if request["do"] == "time":
        return {"timings": {name: time_of(100.0) for name in request["implementations"]}}
    return {**AGREES, "status": "wrong"} if request["implementation"] == "triton/wrong" else dict(AGREES)


class Profiler:
    """Replaces the process under Nsight Compute."""

    def __init__(self, *problems: Exception) -> None:
        self.problems = list(problems)
        self.calls: list[tuple[str, bool]] = []

    def __call__(self, once: Once, executable: str, *, cold: bool, timeout_s: float) -> dict[str, Any]:
        assert isinstance(once.implementation, str)
        self.calls.append((once.implementation, cold))
        if self.problems:
            raise self.problems.pop(0)
        return {"ncu_dram": 0.92, "ncu_stall": "long_scoreboard", "bound_by": Bound.DRAM}


@pytest.fixture
def profiled(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Row]]:
    def run(profiler: Profiler, **options: Any) -> list[Row]:
        monkeypatch.setattr(nsight, "ncu", lambda: "/bin/ncu")
        monkeypatch.setattr(child, "profile", profiler)
        return compare(answer, names=NAMES, profiled=True, **options)

    return run


def test_every_timed_row_is_profiled_after_all_of_its_case_are_timed(profiled: Callable[..., list[Row]]) -> None:
    profiler, seen = Profiler(), Recorded()
    rows = profiled(profiler, observer=seen)
    assert profiler.calls == [(row.implementation, True) for row in rows]
    assert [(row.ncu_dram, row.ncu_stall, row.bound_by) for row in rows] == [(0.92, "long_scoreboard", Bound.DRAM)] * 2
    last = max(i for i, doing in enumerate(seen.steps) if doing.startswith("timing"))
    assert seen.steps[last + 1 :] == ["profiling triton", "profiling torch"]


def test_a_row_that_is_not_timed_is_not_profiled(profiled: Callable[..., list[Row]]) -> None:
    profiler = Profiler()
    profiled(profiler, timed=False)
    assert profiler.calls == []


def test_a_call_that_fails_costs_its_own_figures(profiled: Callable[..., list[Row]]) -> None:
    first, second = profiled(Profiler(OnceError("out of memory")))
    assert (first.status, first.device_us, first.reason) == (Status.OK, 100.0, "not profiled: out of memory")
    assert (first.bound_by, second.bound_by) == (Bound.UNKNOWN, Bound.DRAM)


def test_where_ncu_has_no_permission_it_is_asked_once(profiled: Callable[..., list[Row]]) -> None:
    profiler = Profiler(NsightError(nsight.PERMISSION_HINT, refused=True))
    rows = profiled(profiler)
    assert len(profiler.calls) == 1
    assert {row.reason for row in rows} == {f"not profiled: {nsight.PERMISSION_HINT}"}


def test_a_resumed_run_profiles_what_the_first_one_has_not(profiled: Callable[..., list[Row]]) -> None:
    rows = profiled(Profiler(OnceError("interrupted")))
    profiler = Profiler()
    again = profiled(profiler, finished={row.key: replace(row) for row in rows})
    assert profiler.calls == [(rows[0].implementation, True)]
    assert [row.bound_by for row in again] == [Bound.DRAM] * 2


def test_the_code_is_written_to_a_folder_for_each_implementation_and_case(
    compare: Compare, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Once] = []

    def write(once: Once, timeout_s: float) -> list[str]:
        asked.append(once)
        return [f"add.{kind}" for kind in once.kinds]

    monkeypatch.setattr(child, "code", write)
    options = {"dumped": ("ptx", "hlo"), "code_folder": tmp_path, "shape": "N=64", "timed": False}
    triton, torch = compare(answer, names=NAMES, **options)
    below = "triton/vector_add-N=64-float32-ieee"
    assert [(once.implementation, once.kinds, once.folder) for once in asked] == [
        ("triton", ("ptx",), str(tmp_path / below))
    ]
    assert triton.code == f"code/{below}: add.ptx"
    assert torch.code == "none: torch runs the kernels of a library"
    assert inspection.summary([triton, torch]) == "triton: ptx; torch: none: torch runs the kernels of a library"


def test_code_that_cannot_be_written_is_no_failure_of_the_row(
    compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(once: Once, timeout_s: float) -> list[str]:
        raise OnceError("no cuobjdump")

    monkeypatch.setattr(child, "code", fail)
    (row,) = compare(answer, names=("triton",), dumped=("sass",), timed=False)
    assert (row.status, row.code) == (Status.OK, "none: no cuobjdump")


def test_calls_are_counted_on_a_cpu_in_a_small_case(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Once] = []

    def count(once: Once, timeout_s: float) -> dict[str, Any]:
        asked.append(once)
        if once.implementation == "triton":
            raise OnceError("too many steps")
        return {"count_loads": 6252}

    monkeypatch.setattr(child, "counts", count)
    names = ("cuda", "triton", "torch")
    rows = {row.implementation: row for row in compare(answer, names=names, counted=True, timed=False)}
    assert [(once.device.type, once.case.label) for once in asked] == [("cpu", "N=100003")] * 2
    assert (rows["cuda"].count_loads, rows["cuda"].counted) == (6252, "N=100003 float32")
    assert (rows["triton"].status, rows["triton"].counted) == (Status.OK, "none: too many steps")
    assert rows["torch"].counted == "none: torch runs the kernels of a library or of a compiler"


@pytest.mark.parametrize(
    ("profiler", "options", "reason"),
    [
        ("nsys", {}, "--profile: unknown 'nsys'; valid is ncu"),
        ("ncu", {"device": CPU}, "--profile ncu: needs an NVIDIA GPU; the device is a CPU"),
        ("ncu", {"timed": False}, "--no-time times nothing"),
        ("ncu", {}, "ncu (Nsight Compute) is not on PATH, nor at /usr/local/cuda/bin/ncu"),
        ("", {"dumped": ("cubin",)}, "--dump: unknown 'cubin'; valid are ptx, sass, ttir, ttgir, hlo"),
        ("", {"dumped": ("hlo",), "publish": True}, "--dump writes code to the run's folder, --publish"),
    ],
    ids=["unknown", "on a CPU", "untimed", "without ncu", "unknown kind", "published"],
)
def test_what_cannot_be_done_is_refused_before_any_work(
    profiler: str, options: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsight, "ncu", lambda: None)
    publish = options.pop("publish", False)
    with pytest.raises(UsageError) as raised:
        inspection.check(profiler, Options(**{"device": H200, **options}), publish=publish)
    assert reason in str(raised.value)
