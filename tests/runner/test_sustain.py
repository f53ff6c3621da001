"""The rows that get a sustained time, and the columns that follow from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scripted_worker import AGREES, time_of

from suite import ops
from suite.results.row import Attempt, Row
from suite.runner.options import Sustain
from suite.runner.sustain import largest
from suite.worker.pool import WorkerDiedError

NAMES = ("torch", "jax", "triton", "cuda")
TIMES = {"torch": 730.0, "jax": 740.0, "triton": 725.0, "cuda": 900.0}
LOAD = {"sustained_us": 800.0, "sustained_us_low": 799.0, "sustained_us_high": 801.0, "joules": 0.5}
CLOCK = {"sustained_clock_mhz": 1300.0, "sustained_power_w": 690.0, "sustained_temperature_c": 61.0}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "sustain":
        return {"columns": {**LOAD, **CLOCK}}
    if request["do"] == "time":
        return {"timings": {name: time_of(TIMES[name], clock_sm_mhz=1980.0) for name in request["implementations"]}}
    return AGREES


def sustained(rows: list[Row]) -> set[tuple[str, str]]:
    return {(row.implementation, row.case) for row in rows if row.sustained is Attempt.DONE}


def test_the_columns_of_a_row_with_both_times(compare: Any) -> None:
    (row,) = compare(answer, sustained=Sustain.ALL)
    least_us = 3 * 2**28 * 4 / 4.8e12 * 1e6
    assert (row.device_us, row.sustained_us, row.sustained_clock_mhz) == (730.0, 800.0, 1300.0)
    assert row.of_limit == pytest.approx(least_us / 730.0)
    assert row.of_limit_at_clock == pytest.approx(least_us / 730.0), "memory has its own clock"
    assert row.sustained_of_limit == row.sustained_of_limit_at_clock == pytest.approx(least_us / 800.0)
    assert row.gflop_per_joule == pytest.approx(2**28 / 0.5 / 1e9)


def test_each_word_chooses_its_rows(compare: Any) -> None:
    shapes, chosen = ("N=1024", "N=268435456"), dict[str, set[tuple[str, str]]]()
    for sustain in Sustain:
        chosen[sustain] = sustained(compare(answer, names=NAMES, shapes=shapes, sustained=sustain))
    assert chosen["none"] == set()
    assert chosen["all"] == {(name, shape) for name in NAMES for shape in shapes}
    assert chosen["fastest"] == chosen["all"], "each is the fastest of its framework"
    assert chosen["largest"] == {(name, "N=268435456") for name in NAMES}


def test_the_slower_row_of_a_framework_has_none_unless_it_is_the_vendors(compare: Any) -> None:
    def with_others(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "time":
            times = {name: 730.0 + i for i, name in enumerate(request["implementations"])}
            return {"timings": {name: time_of(us) for name, us in times.items()}}
        return answer(request)

    rows = compare(with_others, names=("torch*", "jax*", "triton*"), sustained=Sustain.FASTEST)
    timed = [row for row in rows if row.timed is Attempt.DONE]
    got = [row.implementation for row in timed if row.sustained is Attempt.DONE]
    assert len({name.split("/")[0] for name in got}) == 3
    assert any(row.vendor for row in timed if row.implementation in got)
    assert len(got) <= 4


def test_a_failure_is_a_remark_and_the_row_keeps_its_times(compare: Any) -> None:
    def fails(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "sustain":
            raise WorkerDiedError("killed by signal 9", None)
        return answer(request)

    (row,) = compare(fails, sustained=Sustain.ALL)
    assert (row.device_us, row.sustained_us, row.sustained) == (730.0, None, Attempt.FAILED)
    assert "no sustained time: killed by signal 9" in row.remarks


def test_a_resumed_run_measures_what_is_missing_and_nothing_twice(compare: Any) -> None:
    asked: list[str] = []

    def noted(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["do"])
        return answer(request)

    (row,) = compare(noted, sustained=Sustain.ALL)
    interrupted = replace(row, sustained=Attempt.NOT_TRIED, sustained_us=None)
    asked.clear()
    (again,) = compare(noted, sustained=Sustain.ALL, finished={row.key: interrupted})
    assert asked == ["sustain"]
    assert again.sustained_us == 800.0
    asked.clear()
    compare(noted, sustained=Sustain.ALL, finished={row.key: row})
    assert asked == []


def test_later_runs_of_repeat_keep_the_sustained_time(compare: Any) -> None:
    (row,) = compare(answer, sustained=Sustain.ALL, repeat=3)
    assert (row.runs, row.sustained_us, row.joules) == (3, 800.0, 0.5)


def test_the_largest_case_has_the_most_flops_then_the_narrowest_type() -> None:
    for name in ops.names():
        op = ops.get(name)
        case = largest(op, op.default_cases("cuda"))
        assert op.flops(case) == max(op.flops(each) for each in op.default_cases("cuda"))
    matmul = ops.get("matmul")
    assert largest(matmul, matmul.default_cases("cuda")).dtype == "bfloat16"
