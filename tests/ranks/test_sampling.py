"""Times over ranks: the gate is no part of a sample; and the limit of a row is that of the link."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suite import ops
from suite.problem.ranked import seed_of
from suite.ranks.sampling import busy_us
from suite.results.rates import rates
from suite.results.row import Row
from suite.timing.intervals import Activity
from suite.timing.recorder import Sample

H100 = "NVIDIA H100 80GB HBM3"


def kernel(name: str, start: int, end: int) -> Activity:
    return Activity(name, start, end, "kernel")


def test_the_first_activities_of_a_span_are_the_gate() -> None:
    activities = [kernel("mine", 900, 1400), kernel("sleep", 0, 500), kernel("nccl", 500, 800), kernel("b", 1300, 1600)]
    assert busy_us(Sample("mine", 9.9, activities), 2) == pytest.approx(0.7)
    assert busy_us(Sample("mine", 9.9, None), 0) == 9.9


def test_seeds_differ_between_ranks_and_draws() -> None:
    assert len({seed_of(seed, rank, 4) for seed in range(50) for rank in range(4)}) == 200


def test_the_limit_is_nvlinks_rate_and_bus_bandwidth_counts_what_a_rank_sends() -> None:
    op = ops.get("all_reduce")
    case = replace(op.case((2**27,), "bfloat16"), ranks=2)
    row = Row("all_reduce", case.label, "bfloat16", "ieee", "cuda", device_us=1000.0, cache="cold")
    found = rates(row, op, case, H100)
    assert found["bus_gb_per_s"] == pytest.approx(2**28 / 1e6)
    assert found["limit"] == "NVLink (datasheet)"
    assert found["of_limit"] == pytest.approx(2**28 / 450e3 / 1000)
    assert "of_limit" not in rates(row, op, case, "NVIDIA L4")
