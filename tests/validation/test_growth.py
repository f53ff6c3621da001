"""The synthetic rows of docs/scaling.md are like those of a real run; a simulated device returns its task's rows."""

from __future__ import annotations

import pytest

from suite.hardware.device import resolve
from suite.runner.options import Options
from validation import growth


def test_every_made_case_has_a_row_of_each_implementation_and_a_vendor() -> None:
    cases = growth.cases(7)
    growth.take_all(cases)
    rows = growth.rows_of(cases[3], 3)
    assert [row.implementation for row in rows] == list(growth.NAMES)
    assert len({row.case_key for row in rows}) == 1
    assert [row.vs_best for row in rows if row.vendor] == [1.0]
    assert not any(row.damage for row in rows)


def test_a_simulated_device_gives_the_rows_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="dask distributed is not installed: pip install '.[cluster]'")
    from suite.cluster.messages import Finished, Setup, Task
    from validation.simulated_cluster import Seen
    from validation.simulation import host

    monkeypatch.setattr(host, "CASE_S", 0.0)
    (case,) = growth.cases(1)
    answer = host.Simulated({}, 1).run(Setup(Options(resolve("cpu"))), Task(4, case, case, ("torch", "numpy")))
    assert isinstance(answer, Finished)
    assert (answer.number, [row.implementation for row in answer.rows]) == (4, ["torch", "numpy"])
    seen = Seen()
    seen.store(None, answer.rows)
    seen.store(None, answer.rows[:1])
    assert sorted(seen.rows.values()) == [1, 2]
