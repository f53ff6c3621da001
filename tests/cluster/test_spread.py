"""Cases that are timed on several devices of a model: which, on how many, and what their rows say."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest

from suite.cluster import local
from suite.cluster.ledger import Ledger
from suite.cluster.messages import Finished, Task, decode, encode
from suite.cluster.spread import MAX_DEVICES, SHARE, Spread
from suite.hardware.device import resolve
from suite.problem.operation import Operation
from suite.results.render import gpus_remark
from suite.results.row import Attempt, Key, Row, Status
from suite.runner.observer import Observer
from suite.runner.options import Options
from suite.runner.plan import Job, plan
from suite.runner.selection import Selection

CPU = resolve("cpu")
NAMES = ("torch", "numpy")


def jobs_of(cases: int) -> list[Job]:
    shapes = tuple(f"N={size}" for size in range(1, cases + 1))
    return plan(Selection(("vector_add",), NAMES, shapes=shapes, dtypes=("float32",), inputs=("none",)), CPU)


class Stored(Observer):
    """Keeps the last row of each key."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}

    def store(self, operation: Operation, rows: Sequence[Row]) -> None:
        self.rows.update((row.key, replace(row)) for row in rows)


class Simulated:
    """Devices that take tasks in turns. Device n takes n% longer than device 0."""

    def __init__(self, names: Sequence[str], finished: dict[Key, Row] | None = None, cases: int = 21) -> None:
        self.stored, self.names, self.given = Stored(), list(names), list[tuple[str, Task]]()
        self.ledger = Ledger(jobs_of(cases), Options(CPU), self.stored, finished or {}, len(names))

    def rows(self, device: str, task: Task) -> tuple[Row, ...]:
        us = 100.0 + self.names.index(device)
        if task.again:
            return tuple(replace(row, device_us=us, host=device) for row in task.finished)
        row = Row("vector_add", task.case.label, "float32", "ieee", "", device="cpu", device_us=us, timed=Attempt.DONE)
        return task.finished or tuple(replace(row, implementation=name, host=device) for name in NAMES)

    def run(self, lost: Sequence[str] = ()) -> list[Row]:
        """Run all tasks. Devices of `lost` lose each case that they are to time again, and then are gone."""
        turns = deque(self.names)
        while not self.ledger.is_complete(turns):
            device = turns[0]
            turns.rotate(-1)
            if (task := self.ledger.take(set(), device)) is None:
                continue
            self.given.append((device, task))
            if device in lost and task.again:
                turns.remove(device)
                self.ledger.lose(task.number, device, "it is gone")
                continue
            answer = decode(encode(Finished(task.number, self.rows(device, task))))
            assert isinstance(answer, Finished)
            self.ledger.store(task.number, answer.rows)
            self.ledger.finish(task.number, answer.rows)
        return self.ledger.rows


def test_some_cases_are_timed_on_every_device_after_all_others() -> None:
    run = Simulated(["a", "b"])
    rows = run.run()
    assert [task.again for _, task in run.given] == [False] * 21 + [True] * 2
    assert {row.case for row in rows if row.gpus} == {"N=1", "N=21"}
    for row in rows:
        assert (row.gpus, row.gpu_spread) == ((2, pytest.approx(0.01)) if row.case in ("N=1", "N=21") else (None, None))
    assert len(rows) == 42
    assert run.stored.rows == {row.key: row for row in rows}, "rows are stored again with their spread"
    assert "4 rows were timed on up to 2 GPUs: the slowest takes 1.0% more time" in gpus_remark(rows)
    assert gpus_remark(rows[2:4]) == ""


@pytest.mark.parametrize(("devices", "cases"), [(1, 10_000), (2, 10), (8, 10_000), (1000, 10_000)])
def test_the_number_of_further_times_is_a_share_of_the_cases(devices: int, cases: int) -> None:
    spread, count = Spread(cases, devices), 0
    row = Row("sum", "N=1", "float32", "ieee", "torch", device_us=1.0, timed=Attempt.DONE)
    for number in range(cases):
        spread.finish(number, "0", [row])
    for device in map(str, range(devices)):
        while spread.begin(device) is not None:
            count += 1
    most = min(devices, MAX_DEVICES) - 1
    assert most * bool(count) <= count <= SHARE * cases + most
    assert bool(count) is (devices > 1)


def test_a_device_that_is_lost_while_it_times_a_case_again_costs_nothing_but_its_time() -> None:
    run = Simulated(["a", "b", "c"])
    rows = run.run(lost=["b"])
    assert [row.reason for row in rows if row.reason] == [
        "not timed on another device: its process was lost on b: it is gone"
    ] * 2
    assert {row.gpus for row in rows if row.case == "N=1"} == {2}
    assert {row.status for row in rows} == {Status.OK}


def test_a_failure_on_a_further_device_is_the_rows() -> None:
    class Faulty(Simulated):
        def rows(self, device: str, task: Task) -> tuple[Row, ...]:
            found = super().rows(device, task)
            if task.again:
                found[0].status, found[0].reason = Status.WRONG, "element 3"
            return found

    rows = Faulty(["a", "b"], cases=1).run()
    assert [row.status for row in rows] == [Status.WRONG, Status.OK]
    assert rows[0].reason == "on another device, b: element 3"
    assert [row.gpus for row in rows] == [None, 2]


def test_a_row_says_why_a_further_device_gives_no_time() -> None:
    class Killed(Simulated):
        def rows(self, device: str, task: Task) -> tuple[Row, ...]:
            found = super().rows(device, task)
            if task.again:
                found[0].status, found[0].killed_from_outside, found[0].reason = Status.ERROR, True, "SIGKILL"
            return found

    rows = Killed(["a", "b"], cases=1).run()
    assert [(row.status, row.gpus) for row in rows] == [(Status.OK, None), (Status.OK, 2)]
    assert rows[0].reason == "not timed on another device: SIGKILL"


def test_a_resumed_run_times_again_what_has_no_spread_yet() -> None:
    first = Simulated(["a", "b"], cases=1)
    first.ledger = Ledger(jobs_of(1), Options(CPU), first.stored, {})
    alone = first.run()
    resumed = Simulated(["a", "b"], {row.key: row for row in alone}, cases=1)
    assert {row.gpus for row in resumed.run()} == {2}
    assert not any(task.again for _, task in Simulated(["a", "b"], resumed.stored.rows, cases=1).given)


def test_runs_without_times_have_no_spread() -> None:
    ledger = Ledger(jobs_of(1), Options(CPU, timed=False), Observer(), {}, 2)
    task = ledger.take(set(), "a")
    assert task is not None
    ledger.finish(task.number, [Row("vector_add", "N=1", "float32", "ieee", "torch")])
    assert ledger.take(set(), "b") is None
    assert ledger.is_complete({"a", "b"})


@pytest.mark.slow(seconds=15)
@pytest.mark.thorough
def test_two_processes_of_a_cpu_time_one_case_each() -> None:
    rows = local.compare(jobs_of(1), Options(CPU, devices=2))
    assert [(row.status, row.gpus) for row in rows] == [(Status.OK, 2)] * 2
    assert all(row.gpu_spread is not None and row.gpu_spread >= 0 for row in rows)
