"""compare --repeat: all cases are timed again in fresh workers, and each row has the medians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scripted_worker import AGREES, Recorded, time_of

from suite.results.row import Attempt, Status

TIMES = (2000.0, 2300.0, 2100.0)


def answers(times: tuple[float, ...] = TIMES, asked: list[str] | None = None) -> Callable[[dict[str, Any]], Any]:
    left = list(times)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        (asked if asked is not None else []).append(request["do"])
        if request["do"] == "check":
            return AGREES
        us = left.pop(0)
        ends = {"device_us_low": us - 1, "device_us_high": us + 1}
        return {"timings": {name: time_of(us, **ends) for name in request["implementations"]}}

    return answer


def test_a_row_has_the_medians_of_its_runs(compare: Any) -> None:
    asked: list[str] = []
    observer = Recorded()
    (row,) = compare(answers(asked=asked), repeat=3, observer=observer)
    assert asked == ["check", "time", "time", "time"]
    assert (row.device_us, row.device_us_low, row.device_us_high) == (2100.0, 1999.0, 2301.0)
    assert (row.runs, row.spread) == (3, pytest.approx(0.15))
    assert row.of_limit == pytest.approx(3 * 2**30 / 4.8e12 / 2100e-6)
    assert row.noisy, "(2301 - 1999) / 2 / 2100 is 7.2%"
    assert observer.cases == 1
    assert "timing 1 implementations, run 3" in observer.steps


def test_without_repeat_there_is_one_run(compare: Any) -> None:
    (row,) = compare(answers())
    assert (row.device_us, row.runs, row.spread, row.noisy) == (2000.0, 1, None, False)


def test_each_run_has_a_fresh_worker(compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from scripted_worker import ScriptedPool

    renewed: list[int] = []
    monkeypatch.setattr(ScriptedPool, "renew", lambda self: renewed.append(1))
    compare(answers(), repeat=3)
    assert len(renewed) == 2


def test_a_row_that_fails_in_a_later_run_has_failed(compare: Any) -> None:
    taken: list[str] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        taken.append("time")
        if len(taken) > 1:
            return {"status": "error", "reason": "died", "failed": "torch"}
        return answers()(request)

    (row,) = compare(answer, repeat=2)
    assert (row.status, row.reason, row.timed) == (Status.ERROR, "while timed: died", Attempt.FAILED)


def test_an_interrupted_run_goes_on_with_what_is_missing(compare: Any) -> None:
    (once,) = compare(answers(TIMES[:1]))
    (row,) = compare(answers(TIMES[1:]), repeat=3, finished={once.key: once})
    assert (row.device_us, row.runs) == (2100.0, 3)
    (again,) = compare(answers(()), repeat=3, finished={row.key: replace(row)})
    assert again == row
    partly = replace(row, runs=2)
    (anew,) = compare(answers(), repeat=3, finished={row.key: partly})
    assert (anew.device_us, anew.runs) == (2100.0, 3)
