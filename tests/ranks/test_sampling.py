"""Times over ranks: the gate is no part of a sample; and the limit of a row is that of the link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from suite import ops
from suite.problem.ranked import seed_of
from suite.ranks import group
from suite.ranks.sampling import BATCH, RankedCall, Rounds, busy_us
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


class Device:
    """A device that counts the work that it is given. It is the target, the recorder and the gate's framework."""

    name, on_host, type = "strict", False, "cuda"

    def __init__(self) -> None:
        self.work = self.allowed = self.taken = 0
        self.recording = False
        self.names: list[str] = []

    def launch(self, *_: object) -> None:
        self.work += 1

    evict = launch

    def gate(self, device: object, delay_us: float) -> Callable[[], object]:
        self.launch()  # a gate has memory of its own
        return self.launch

    def start(self) -> None:
        self.allowed = self.work

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        if not self.names:
            assert self.work == self.allowed, "the device worked before the first sample of a batch"
        prepare()
        run()
        self.names.append(name)

    def collect(self) -> list[Sample]:
        found = [Sample(name, 5.0, [kernel("gate", 0, 1000), kernel(name, 1000, 6000)]) for name in self.names]
        self.names, self.allowed, self.taken = [], self.work, self.taken + len(found)
        if found[0].name == "gate":
            found = [replace_activities(each, 1) for each in found]
        return found

    def recorder(self) -> Device:
        return self

    def wait(self, result: object) -> None: ...

    synchronize = stop = state = limits = lambda self: None


def replace_activities(sample: Sample, count: int) -> Sample:
    assert sample.activities is not None
    return sample._replace(activities=sample.activities[:count])


def test_new_inputs_and_gates_are_no_work_outside_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr("suite.ranks.sampling.target", lambda _: device)
    monkeypatch.setattr("suite.ranks.sampling.JUDGED_ROUNDS", 0)
    monkeypatch.setattr(group, "meet", lambda: None)
    monkeypatch.setattr(group, "largest", float)
    monkeypatch.setattr(group, "gathered", lambda value: [value])
    monkeypatch.setattr(group, "shared_random", lambda: Random(1))

    def draw(seed: int) -> tuple[()]:
        device.launch()
        return ()

    problem = SimpleNamespace(device=device, buffers=(), draw=draw)
    calls = [RankedCall(name, device.launch, cast(Any, device)) for name in ("one", "two")]
    request = SimpleNamespace(cache="cold", max_noise=0.1, least=SimpleNamespace(time_s=0.0, samples=1))
    rounds = Rounds(calls, cast(Any, problem), cast(Any, request), lambda name: None)
    assert rounds.sample_all() == ""
    assert device.taken > 2 * BATCH
    assert {name: set(record.device_us) for name, record in rounds.records.items()} == {"one": {5.0}, "two": {5.0}}
