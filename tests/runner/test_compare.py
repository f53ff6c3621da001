"""compare(): rows, times, repeated times and remarks. A script of answers replaces the worker."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from scripted_worker import AGREES, CPU, Answer, Recorded, time_of

from suite.results.render.summary import crossovers, exit_status
from suite.results.row import Attempt
from suite.worker.pool import WorkerDiedError, WorkerTimeoutError


def test_rates_and_the_distance_to_the_limit_come_from_the_operations_own_bytes(compare: Any) -> None:
    (row,) = compare(lambda r: AGREES if r["do"] == "check" else {"timings": {"torch": time_of(730.0)}})
    assert row.gb_per_s == pytest.approx(3 * 2**28 * 4 / 730e-6 / 1e9)
    assert row.of_limit == pytest.approx(3 * 2**28 * 4 / 4.8e12 / 730e-6)
    assert row.limit == "memory (datasheet)"
    assert row.device == "cuda:0"


def test_a_time_below_the_limit_is_suspect_and_fails_the_run(compare: Any) -> None:
    (row,) = compare(lambda r: AGREES if r["do"] == "check" else {"timings": {"torch": time_of(600.0)}})
    assert row.suspect
    assert row.remarks.startswith("suspect: faster than the device's memory (datasheet) allows")
    assert exit_status([row]) == 1


def test_with_a_warm_cache_memory_is_no_limit(compare: Any) -> None:
    timed = {"timings": {"torch": time_of(600.0, cache="warm")}}
    (row,) = compare(lambda r: AGREES if r["do"] == "check" else timed, cache="warm")
    assert not row.suspect


def test_a_case_under_a_slowdown_is_timed_again_once(compare: Any) -> None:
    taken: list[int] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        taken.append(1)
        slow = {"remarks": "clocks were lowered: hardware thermal", "clocks_lowered": True}
        return {"timings": {"torch": time_of(800.0 / len(taken), **slow)}}

    (row,) = compare(answer, shape="N=1000")
    assert len(taken) == 2
    assert row.device_us == 400.0
    assert row.clocks_lowered


def test_an_implementation_that_dies_while_timed_costs_its_own_row_only(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if "triton" in request["implementations"]:
            raise WorkerDiedError("the worker was killed by SIGSEGV", "triton")
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    rows = {row.implementation: row for row in compare(answer, names=("triton", "torch"))}
    assert rows["triton"].status == "error"
    assert rows["triton"].reason == "while timed: the worker was killed by SIGSEGV"
    assert rows["torch"].device_us == 800.0


def test_an_implementation_that_raises_while_timed_costs_its_own_row_only(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if "triton" in request["implementations"]:
            return {"status": "error", "reason": "RuntimeError: no", "failed": "triton"}
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    rows = {row.implementation: row for row in compare(answer, names=("triton", "torch"))}
    assert (rows["triton"].status, rows["triton"].device_us) == ("error", None)
    assert rows["torch"].device_us == 800.0


def test_a_failure_in_a_used_worker_counts_if_a_fresh_one_repeats_it(compare: Any) -> None:
    """An implementation is not suspect for what an earlier one left in the process."""
    asked: list[str] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["implementation"])
        if request["implementation"] == "jax" and not request["fresh"]:
            raise WorkerDiedError("the worker was killed by SIGSEGV", "jax")
        if request["implementation"] == "torch":
            return {"status": "wrong", "reason": "value: at [0]", "error_ratio": 9.0}
        return AGREES

    rows = {row.implementation: row for row in compare(answer, names=("triton", "jax", "torch"), timed=False)}
    assert {name: row.status for name, row in rows.items()} == {"triton": "ok", "jax": "ok", "torch": "wrong"}
    assert asked == ["triton", "jax", "jax", "torch", "torch"]


def test_a_worker_killed_from_outside_or_stopped_is_not_tried_again(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["implementation"] == "jax":
            raise WorkerDiedError("the worker was killed by SIGKILL", "jax", from_outside=True)
        if request["implementation"] == "torch":
            raise WorkerTimeoutError("no end within 120 s", "torch")
        return AGREES

    rows = {row.implementation: row.status for row in compare(answer, names=("triton", "jax", "torch"), timed=False)}
    assert rows == {"triton": "ok", "jax": "error", "torch": "timeout"}


@pytest.mark.parametrize("do", ["check", "time"])
@pytest.mark.parametrize("kind", [WorkerDiedError, WorkerTimeoutError])
def test_a_row_says_that_its_worker_was_killed_from_outside(compare: Any, do: str, kind: type[WorkerDiedError]) -> None:
    """--resume runs it again."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == do:
            raise kind("killed", "torch", from_outside=True)
        return AGREES

    (row,) = compare(answer)
    assert row.killed_from_outside
    (row,) = compare(lambda request: {"status": "error", "reason": "no", "failed": "torch"})
    assert not row.killed_from_outside


def timing_of(failing: str, suspect: str | None, *, alive: bool = False) -> Answer:
    """Workers that cannot time `failing`, and report that `suspect` was running."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return {**AGREES, "reason": f"reason of {request['implementation']}"}
        names = request["implementations"]
        if failing in names:
            running = suspect if suspect in names or suspect is None else failing
            if alive:
                return {"status": "error", "reason": "RuntimeError: no", "failed": running}
            raise WorkerDiedError("the worker was killed by SIGSEGV", running)
        return {"timings": {name: time_of(800.0) for name in names}}

    return answer


@pytest.mark.parametrize("suspect", [None, "torch", "triton"])
def test_a_suspect_is_the_failing_one_only_if_it_fails_alone(compare: Any, suspect: str | None) -> None:
    """The failing implementation is found even if another implementation, or none, was running when the worker died."""
    rows = {row.implementation: row for row in compare(timing_of("triton", suspect), names=("triton", "jax", "torch"))}
    assert rows["triton"].status == "error"
    assert rows["triton"].reason == "while timed: the worker was killed by SIGSEGV"
    for name in ("jax", "torch"):
        assert (rows[name].status, rows[name].device_us) == ("ok", 800.0)
        assert rows[name].reason == f"reason of {name}", "the reason of the check stays, once"


def test_a_crash_that_does_not_repeat_costs_nothing(compare: Any) -> None:
    crashes = iter([True])

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if next(crashes, False):
            raise WorkerDiedError("the worker was killed by SIGBUS", None)
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    assert {row.device_us for row in compare(answer, names=("triton", "torch"))} == {800.0}


def test_implementations_that_cannot_be_timed_together_stay_untimed_and_say_why(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if len(request["implementations"]) > 1:
            raise WorkerDiedError("the worker was killed by SIGBUS", None)
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    for row in compare(answer, names=("triton", "torch")):
        assert (row.status, row.device_us) == ("ok", None)
        assert row.reason == "not timed: the worker was killed by SIGBUS"


def test_rows_are_stored_as_they_come_and_not_run_again(compare: Any) -> None:
    """A row is stored when it is checked, and again with its times. Rows of an interrupted run are only completed."""
    asked: list[str] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["do"])
        if request["do"] == "check":
            return AGREES
        return {"timings": {name: time_of(800.0) for name in request["implementations"]}}

    observer = Recorded()
    rows = compare(answer, names=("triton", "torch"), observer=observer)
    assert observer.stored == [[("triton", None)], [("torch", None)], [("triton", 800.0), ("torch", 800.0)]]
    assert asked == ["check", "check", "time"]

    observer = Recorded()
    finished = {row.key: row for row in rows}
    again = compare(answer, names=("triton", "torch"), finished=finished, observer=observer)
    assert (again, observer.cases, len(asked)) == (rows, 0, 3)

    checked = {row.key: replace(row, device_us=None, recorder="", timed=Attempt.NOT_TRIED) for row in rows}
    del checked[rows[1].key]
    (first, second) = compare(answer, names=("triton", "torch"), finished=checked)
    assert asked[3:] == ["check", "time"], "the rows of a case are timed together"
    assert first.device_us == second.device_us == 800.0


def test_texts_of_a_worker_are_reduced_to_one_printable_line(compare: Any) -> None:
    said = {"status": "wrong", "reason": "a\x1b[31m\nb\udc80", "error_ratio": math.nan}
    (row,) = compare(lambda r: said)
    assert (row.reason, row.error_ratio) == ("a [31m b", None)


def test_a_recorder_error_leaves_the_rows_untimed_and_says_why(compare: Any) -> None:
    failed = {"status": "error", "reason": "RecorderError: the clock jumped", "failed": None}
    (row,) = compare(lambda r: AGREES if r["do"] == "check" else failed)
    assert (row.status, row.device_us) == ("ok", None)
    assert row.reason == "not timed: RecorderError: the clock jumped"


def test_a_case_that_is_timed_again_says_why(compare: Any) -> None:
    attempts, observer = itertools.count(), Recorded()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        if next(attempts) == 0:
            return {"status": "error", "reason": "RecorderError: the clock jumped", "failed": None}
        return {"timings": {"torch": time_of(800.0)}}

    (row,) = compare(answer, observer=observer)
    assert (row.device_us, row.reason) == (800.0, "")
    assert observer.steps[-2:] == [
        "timing 1 implementations",
        "timing again, since the last attempt failed: RecorderError: the clock jumped",
    ]


def test_a_wrong_implementation_is_never_timed(compare: Any) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        assert request["do"] == "check"
        return {"status": "wrong", "reason": "at [0]", "error_ratio": 9.0}

    (row,) = compare(answer)
    assert (row.status, row.device_us) == ("wrong", None)


def test_an_implementation_that_hangs_is_a_timeout(compare: Any) -> None:
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


def test_a_sweep_has_rows_of_the_host_beside_the_gpus_and_says_where_the_gpu_wins(compare: Any) -> None:
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
        rows += compare(answer, shape=f"N={n}", names=("torch", "numpy", "cuda"), native_only=True, host=CPU)
    lines = {(row.implementation, row.device) for row in rows}
    assert lines == {("torch", "cuda:0"), ("torch", "cpu"), ("numpy", "cpu")} | ({("cuda", "cuda:0")} & lines)
    assert crossovers(rows) == [
        "vector_add float32 ieee: the GPU is faster, with data already on the device: from N=65536 on; "
        "with transfers through pageable memory: at none of these sizes; through pinned memory: at none of these sizes"
    ]


def test_what_was_tried_is_a_field_of_the_row(compare: Any) -> None:
    """The field says done, failed or not tried. No decision reads the texts of the row."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            if timed:
                raise WorkerDiedError("the worker was killed by SIGSEGV", "torch")
            return AGREES
        timed.append(True)
        return {"timings": {"torch": time_of(800.0)}}

    timed: list[bool] = []
    (row,) = compare(answer, compiles=True)
    assert (row.timed, row.compiled) == (Attempt.DONE, Attempt.FAILED)
    assert row.reason == "not compiled again: the worker was killed by SIGSEGV"
    (row,) = compare(lambda request: AGREES, timed=False)
    assert (row.timed, row.compiled) == (Attempt.NOT_TRIED, Attempt.NOT_TRIED)
    untimed = {"torch": {"reason": "cupti saw no kernel", "recorder": "cupti", "remarks": ""}}
    (row,) = compare(lambda request: AGREES if request["do"] == "check" else {"timings": untimed})
    assert (row.status, row.timed) == ("ok", Attempt.FAILED)
    again = compare(lambda request: pytest.fail("a worker was asked"), finished={row.key: row})
    assert again == [row]
