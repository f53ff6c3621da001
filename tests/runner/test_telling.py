"""Telling cases in a run: they run once for each implementation and arithmetic, at any sizes, and rows report them."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_worker import AGREES, time_of

from suite.results.row import Row
from suite.worker.pool import WorkerDiedError, WorkerTimeoutError

SIZES = ("N=1000", "N=2000", "N=3000")
PASSED = {"status": "ok", "checked": "tail, nan"}
WRONG = {"status": "wrong", "checked": "tail", "reason": "value: no (in the telling case nan: N=5)"}


def run(compare: Any, answers: Any, **options: Any) -> tuple[list[Row], list[str]]:
    """The rows, and the requests to the workers. `answers` are those to successive requests for telling cases."""
    asked: list[str] = []
    replies = iter(answers)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["do"])
        if request["do"] == "time":
            return {"timings": {name: time_of(800.0) for name in request["implementations"]}}
        if request["do"] == "check":
            return AGREES
        reply = next(replies)
        if isinstance(reply, Exception):
            raise reply
        return dict(reply)

    rows = compare(answer, **{"shapes": SIZES, "telling": True, **options})
    return rows, asked


def test_they_run_once_and_every_row_says_what_has_passed(compare: Any) -> None:
    rows, asked = run(compare, [PASSED])
    assert asked.count("probe") == 1
    assert [(row.status, row.checked) for row in rows] == [("ok", "tail, nan")] * 3
    assert all(row.device_us for row in rows)


def test_without_them_nothing_is_asked(compare: Any) -> None:
    rows, asked = run(compare, [], telling=False)
    assert "probe" not in asked
    assert {row.checked for row in rows} == {""}


def test_what_is_wrong_in_one_of_them_is_wrong_in_every_row_and_not_timed(compare: Any) -> None:
    rows, asked = run(compare, [WRONG], timed=True)
    assert asked.count("probe") == 1
    assert {(row.status, row.reason, row.checked) for row in rows} == {("wrong", WRONG["reason"], "tail")}
    assert "time" not in asked


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (WorkerDiedError("the worker was killed by SIGSEGV", "torch"), "error"),
        (WorkerTimeoutError("a telling call of nan did not end within 30 s", "torch"), "timeout"),
        ({"status": "error", "reason": "AssertionError: no; in the telling case nan"}, "error"),
    ],
    ids=["dies", "hangs", "raises"],
)
def test_a_failure_in_one_of_them_is_the_rows(compare: Any, failure: Any, status: str) -> None:
    rows, asked = run(compare, [failure])
    assert {row.status for row in rows} == {status}
    assert all(row.reason for row in rows)
    assert asked.count("probe") == 1


def test_a_failure_in_a_worker_that_others_have_used_is_tried_again_in_a_fresh_one(compare: Any) -> None:
    rows, asked = run(compare, [PASSED, WRONG, PASSED], names=("torch", "triton"), shapes=("N=1000",))
    assert {row.status for row in rows} == {"ok"}
    assert asked.count("probe") == 3


def test_a_worker_killed_from_outside_says_nothing_of_other_rows(compare: Any) -> None:
    killed = WorkerDiedError("the worker was killed by another process", "torch", from_outside=True)
    rows, _ = run(compare, [killed, PASSED])
    assert [(row.status, row.killed_from_outside) for row in rows] == [("error", True), ("ok", False), ("ok", False)]
