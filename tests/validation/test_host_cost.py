"""The verdicts on host costs."""

from __future__ import annotations

import pytest

from validation.host_cost import BATCHES, Cost, idle_us, steady_us, table

RIGHT = Cost("matmul", "cuda/wgmma", 10.0, 1.1, 1.2, 20.0, 10.5, 1.05, 30.0, 31.0, 1.03, 6.0, {"look up": 2.0})


def changed(**values: float | None) -> Cost:
    return Cost(**{**vars(RIGHT), **values})


def test_a_cost_within_its_limits_has_no_fault() -> None:
    assert RIGHT.faults() == []
    assert changed(limit=None, vs_torch=9.0, dispatch_to_loop=None, latency_to_loop=None).faults() == []


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"vs_torch": 1.21}, "1.21 times torch's time, more than 1.2"),
        ({"dispatch_to_loop": 1.15}, "dispatch_us is 1.15 times its loop"),
        ({"latency_to_loop": 0.87}, "latency_us is 0.87 times its loop"),
    ],
    ids=["ratio", "dispatch", "latency"],
)
def test_each_limit_is_named(values: dict[str, float], fault: str) -> None:
    assert changed(**values).faults() == [f"matmul cuda/wgmma: {fault}"]


def test_the_table_leaves_out_what_was_not_measured() -> None:
    line = table([changed(graph_us=None)]).splitlines()[-1]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        *(
            "matmul",
            "cuda/wgmma",
            "10.00",
            "1.10",
            "20.00",
            "2.00",
            "",
            "",
            "10.50",
            "1.05",
            "30.00",
            "31.00",
            "1.03",
            "",
        ),
    ]


def test_the_loops_call_and_wait() -> None:
    calls: list[str] = []
    first, second = steady_us([lambda: calls.append("call"), lambda: None], lambda: calls.append("wait"))
    assert len(first) == len(second) == BATCHES
    idle_us(lambda: calls.append("call"), lambda: calls.append("wait"))
    assert {"call", "wait"} == set(calls)
