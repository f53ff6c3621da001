"""compare(): what becomes a row, what is timed, what is retaken, what is flagged. The worker is a script of answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from suite.hardware.device import Device
from suite.results import render as report
from suite.results.row import Key, Row
from suite.runner import compare as run
from suite.runner import device_run as lane
from suite.runner.plan import plan
from suite.runner.selection import Selection
from suite.worker.pool import WorkerDiedError, WorkerTimeoutError

CPU = Device("cpu", name="CPU")
H200 = Device("cuda", 0, "NVIDIA H200", (9, 0))
AGREES = {"status": "ok", "error_ratio": 0.5, "first_call_s": 0.1}
Answer = Callable[[dict[str, Any]], dict[str, Any]]


def time_of(us: float, **more: Any) -> dict[str, Any]:
    return {
        "device_us": us,
        "latency_us": us + 5,
        "recorder": "cupti",
        "cache": "cold",
        "reason": "",
        "flags": "",
        **more,
    }


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Row]]:
    """compare() of vector_add on 2^28 elements, or `shape`, with workers that answer by `answer`."""

    def go(
        answer: Answer,
        *,
        shape: str = "N=268435456",
        lines: tuple[str, ...] = ("torch",),
        kept: Mapping[Key, Row] = MappingProxyType({}),
        keep: Callable[..., None] = lambda op, rows: None,
        on_rows: Callable[..., None] = lambda op, rows: None,
        on_step: Callable[[run.Step], None] = lambda step: None,
        **options: Any,
    ) -> list[Row]:
        class Pool:
            discarded = 0

            def __init__(self, device: Device, environment: Any = None, memory_bytes: int | None = None) -> None:
                self.device = device
                self.served: set[str] = set()

            def __enter__(self) -> Pool:
                return self

            def __exit__(self, *_: object) -> None: ...

            def ask(self, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
                self.served.update(request.get("implementations") or [request["implementation"]])
                return answer({**request, "device": self.device.type, "fresh": len(self.served) == 1})

            def served_others(self, name: str) -> bool:
                return bool(self.served - {name})

            def discard(self) -> None:
                self.served = set()
                Pool.discarded += 1

        for module in (run, lane):
            monkeypatch.setattr(module, "Pool", Pool)
        monkeypatch.setattr("suite.frameworks.base.torch_is_cpu_build", lambda: False)
        monkeypatch.setattr("suite.frameworks.jax.Jax.missing", lambda self, device: None)
        jobs = plan(Selection(("vector_add",), tuple(lines), dtypes=("float32",), shapes=(shape,)), H200)
        chosen = run.Options(**{"device": H200, **options})
        return run.compare(jobs, chosen, kept=kept, keep=keep, on_rows=on_rows, on_step=on_step)

    return go


def test_rates_and_the_distance_to_the_limit_come_from_the_operations_own_bytes(compare: Any) -> None:
    (row,) = compare(lambda r: AGREES if r["do"] == "check" else {"timings": {"torch": time_of(730.0, joules=0.5)}})
    assert row.gb_per_s == pytest.approx(3 * 2**28 * 4 / 730e-6 / 1e9)
    assert row.of_limit == pytest.approx(3 * 2**28 * 4 / 4.8e12 / 730e-6)
    assert row.limit == "memory (datasheet)"
    assert row.gflop_per_joule == pytest.approx(2**28 / 0.5 / 1e9)
    assert row.device == "cuda:0"


def test_a_time_below_the_limit_is_suspect_and_fails_the_run(compare: Any) -> None:
    (row,) = compare(lambda r: AGREES if r["do"] == "check" else {"timings": {"torch": time_of(600.0)}})
    assert row.suspect
    assert row.flags == "suspect: faster than the device's memory (datasheet) allows"
    assert report.exit_status([row]) == 1


def test_with_a_warm_cache_memory_is_no_limit(compare: Any) -> None:
    timed = {"timings": {"torch": time_of(600.0, cache="warm")}}
    (row,) = compare(lambda r: AGREES if r["do"] == "check" else timed, cache="warm")
    assert not row.suspect


def test_a_case_under_a_slowdown_is_taken_again_once(compare: Any) -> None:
    taken: list[int] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        taken.append(1)
        return {"timings": {"torch": time_of(800.0 / len(taken), flags="clocks were lowered: hardware thermal")}}

    (row,) = compare(answer, shape="N=1000")
    assert len(taken) == 2
    assert row.device_us == 400.0
    assert "clocks were lowered" in row.flags


def test_a_line_that_dies_while_timed_costs_its_own_row_only(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if "triton" in request["implementations"]:
            raise WorkerDiedError("the worker was killed by SIGSEGV", "triton")
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    rows = {row.implementation: row for row in compare(answer, lines=("triton", "torch"))}
    assert rows["triton"].status == "error"
    assert rows["triton"].reason == "while timed: the worker was killed by SIGSEGV"
    assert rows["torch"].device_us == 800.0


def test_a_line_that_raises_while_timed_costs_its_own_row_only(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if "triton" in request["implementations"]:
            return {"status": "error", "reason": "RuntimeError: no", "failed": "triton"}
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    rows = {row.implementation: row for row in compare(answer, lines=("triton", "torch"))}
    assert (rows["triton"].status, rows["triton"].device_us) == ("error", None)
    assert rows["torch"].device_us == 800.0


def test_a_failure_in_a_used_worker_is_believed_when_a_fresh_one_repeats_it(compare: Any) -> None:
    """What an earlier line left behind is not held against the next."""
    asked: list[str] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["implementation"])
        if request["implementation"] == "jax" and not request["fresh"]:
            raise WorkerDiedError("the worker was killed by SIGSEGV", "jax")
        if request["implementation"] == "torch":
            return {"status": "wrong", "reason": "value: at [0]", "error_ratio": 9.0}
        return AGREES

    rows = {row.implementation: row for row in compare(answer, lines=("triton", "jax", "torch"), timed=False)}
    assert {name: row.status for name, row in rows.items()} == {"triton": "ok", "jax": "ok", "torch": "wrong"}
    assert asked == ["triton", "jax", "jax", "torch", "torch"]


def test_a_worker_killed_from_outside_or_stopped_is_not_tried_again(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["implementation"] == "jax":
            raise WorkerDiedError("the worker was killed by SIGKILL", "jax", from_outside=True)
        if request["implementation"] == "torch":
            raise WorkerTimeoutError("no end within 120 s", "torch")
        return AGREES

    rows = {row.implementation: row.status for row in compare(answer, lines=("triton", "jax", "torch"), timed=False)}
    assert rows == {"triton": "ok", "jax": "error", "torch": "timeout"}


def timing_of(guilty: str, blamed: str | None, *, alive: bool = False) -> Answer:
    """Workers that cannot time `guilty`, and say that `blamed` was running."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return {**AGREES, "reason": f"noted of {request['implementation']}"}
        names = request["implementations"]
        if guilty in names:
            running = blamed if blamed in names or blamed is None else guilty
            if alive:
                return {"status": "error", "reason": "RuntimeError: no", "failed": running}
            raise WorkerDiedError("the worker was killed by SIGSEGV", running)
        return {"timings": {name: time_of(800.0) for name in names}}

    return answer


@pytest.mark.parametrize("blamed", [None, "torch", "triton"])
def test_whoever_was_running_is_not_to_blame_unless_it_fails_alone(compare: Any, blamed: str | None) -> None:
    """The line that breaks the others' worker is found, also where nobody or somebody else was running."""
    rows = {row.implementation: row for row in compare(timing_of("triton", blamed), lines=("triton", "jax", "torch"))}
    assert rows["triton"].status == "error"
    assert rows["triton"].reason == "while timed: the worker was killed by SIGSEGV"
    for name in ("jax", "torch"):
        assert (rows[name].status, rows[name].device_us) == ("ok", 800.0)
        assert rows[name].reason == f"noted of {name}", "what the check had to say stays, and stays once"


def test_a_crash_that_nobody_repeats_costs_nothing(compare: Any) -> None:
    crashes = iter([True])

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if next(crashes, False):
            raise WorkerDiedError("the worker was killed by SIGBUS", None)
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    assert {row.device_us for row in compare(answer, lines=("triton", "torch"))} == {800.0}


def test_lines_that_cannot_be_timed_together_stay_untimed_and_say_why(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if len(request["implementations"]) > 1:
            raise WorkerDiedError("the worker was killed by SIGBUS", None)
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    for row in compare(answer, lines=("triton", "torch")):
        assert (row.status, row.device_us) == ("ok", None)
        assert row.reason == "not timed: the worker was killed by SIGBUS"


def test_rows_are_kept_as_they_come_and_not_done_again(compare: Any) -> None:
    """Each when it is checked, all again with their times; what an interrupted run has kept is only completed."""
    asked: list[str] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["do"])
        if request["do"] == "check":
            return AGREES
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    kept: list[list[tuple[str, float | None]]] = []
    rows = compare(
        answer,
        lines=("triton", "torch"),
        keep=lambda op, rows: kept.append([(row.implementation, row.device_us) for row in rows]),
    )
    assert kept == [[("triton", None)], [("torch", None)], [("triton", 800.0), ("torch", 800.0)]]
    assert asked == ["check", "check", "time"]

    told: list[list[Row]] = []
    finished = {row.key: row for row in rows}
    again = compare(answer, lines=("triton", "torch"), kept=finished, on_rows=lambda op, rows: told.append(rows))
    assert (again, told, len(asked)) == (rows, [], 3)

    checked = {row.key: replace(row, device_us=None, recorder="") for row in rows}
    del checked[rows[1].key]
    (first, second) = compare(answer, lines=("triton", "torch"), kept=checked)
    assert asked[3:] == ["check", "time"], "the rows of a case are timed together"
    assert first.device_us == second.device_us == 800.0


def test_what_a_worker_says_is_made_harmless(compare: Any) -> None:
    said = {"status": "error", "reason": "a\x1b[31m\nb\udc80", "error_ratio": math.nan}
    (row,) = compare(lambda r: said)
    assert (row.reason, row.error_ratio) == ("a [31m b", None)


def test_a_recorder_that_cannot_be_trusted_leaves_the_rows_untimed_and_says_why(compare: Any) -> None:
    failed = {"status": "error", "reason": "RecorderError: the clock jumped", "failed": None}
    (row,) = compare(lambda r: AGREES if r["do"] == "check" else failed)
    assert (row.status, row.device_us) == ("ok", None)
    assert row.reason == "not timed: RecorderError: the clock jumped"


def test_a_case_that_is_timed_again_says_why(compare: Any) -> None:
    attempts, told = itertools.count(), list[str]()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if next(attempts) == 0:
            return {"status": "error", "reason": "RecorderError: the clock jumped", "failed": None}
        return {"timings": {"torch": time_of(800.0)}}

    (row,) = compare(answer, on_step=lambda step: told.append(step.doing))
    assert (row.device_us, row.reason) == (800.0, "")
    assert told[-2:] == [
        "timing 1 implementations",
        "timing again, since the last attempt failed: RecorderError: the clock jumped",
    ]


def test_a_wrong_line_is_never_timed(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        assert request["do"] == "check"
        return {"status": "wrong", "reason": "at [0]", "error_ratio": 9.0}

    (row,) = compare(answer)
    assert (row.status, row.device_us) == ("wrong", None)


def test_a_line_that_hangs_is_a_timeout(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        raise WorkerTimeoutError("no result within 120 s", "torch")

    (row,) = compare(answer)
    assert (row.status, row.reason) == ("timeout", "no result within 120 s")


def test_transfers_add_up_to_the_whole_program(compare: Any) -> None:
    copies = {"to_device_us": 100.0, "to_device_pinned_us": 40.0, "to_host_us": 50.0, "to_host_pinned_us": 20.0}
    timed = {"timings": {"torch": time_of(800.0, **copies)}}
    (row,) = compare(lambda r: AGREES if r["do"] == "check" else timed, transfers=True)
    assert row.program_us == 100.0 + 805.0 + 50.0
    assert row.program_pinned_us == 40.0 + 805.0 + 20.0


def test_first_calls_are_timed_in_fresh_processes_on_request(compare: Any) -> None:
    seconds = iter([1.0, 9.0, 2.0])

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return {**AGREES, "first_call_s": next(seconds)}
        return {"timings": {"torch": time_of(800.0)}}

    (row,) = compare(answer, compiles=True)
    assert (row.first_call_s, row.compile_s, row.compile_warm_s) == (1.0, 9.0, 2.0)


def test_a_sweep_puts_the_hosts_lines_beside_the_gpus_and_says_where_the_gpu_wins(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        size = dict(request["case"]["dims"])["N"]
        us = 20.0 + size / 1e6 if request["device"] == "cuda" else size / 1e3
        copies = dict.fromkeys(
            ("to_device_us", "to_device_pinned_us"), 0.0 if request["device"] == "cpu" else size / 500
        )
        copies |= dict.fromkeys(("to_host_us", "to_host_pinned_us"), 0.0)
        return {"timings": {name: time_of(us, latency_us=us, **copies) for name in request["implementations"]}}

    rows = []
    for n in (1024, 8192, 65536, 524288):
        rows += compare(answer, shape=f"N={n}", lines=("torch", "numpy", "cuda"), native_only=True, host=CPU)
    lines = {(row.implementation, row.device) for row in rows}
    assert lines == {("torch", "cuda:0"), ("torch", "cpu"), ("numpy", "cpu")} | ({("cuda", "cuda:0")} & lines)
    assert report.crossovers(rows) == [
        "vector_add float32 ieee: the GPU is faster, on data that is there already: from N=65536 on; "
        "with transfers through pageable memory: at none of these sizes; through pinned memory: at none of these sizes"
    ]
