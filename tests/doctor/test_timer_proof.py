"""The whole proof of the timer, on a GPU in simulated time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes.machine import Machine

from suite import frameworks
from suite.doctor.timer_proof import checks, expectations, groups, proof, render, work
from suite.doctor.timer_proof.checks import Check, ProofRow
from suite.doctor.timer_proof.groups import gaps
from suite.doctor.timer_proof.work import Kit
from suite.hardware.device import Device
from suite.timing import Activity, Call, NoRecorderError, Timing
from suite.timing.sampling import Measurement

OK = ProofRow("cuda", "spin", 10.0, 10.0, 1.0, 9.7, 10.3, "ok", "by definition", "1 kernel", 9)
OFF = ProofRow(
    "torch", "a|b", 12.0, 10.0, 1.2, 9.7, 10.3, "off", "by definition", "2 kernels", 9, "the record should hold"
)


def check(expect: Any, **more: Any) -> Check:
    return Check("cuda", "work", "call", expect, "because", **more)


def prove(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> list[ProofRow]:
    """Every group that does not need torch.cuda, timed by `Measurement`."""
    monkeypatch.setattr(gaps.time, "sleep", machine.sleep)
    arena = SimpleNamespace(
        elements=1 << 30, elapsed=torch.tensor([1_980_000, 1_000_000]), wait=machine.wait, span_us=machine.span_us
    )
    kits = [machine.kit(name) for name in work.FRAMEWORKS]
    everything = groups.group_makers(kits, arena, machine.CLOCK_MHZ, 60 << 20)  # type: ignore[arg-type]
    timings: dict[str, Timing] = {}
    rows = []
    for title, make in everything:
        if title in ("coldness: the reference", "coldness", "overlap", "graph"):
            continue
        group = make()
        timings |= Measurement(group.calls, machine, group.cache).measure(0.05, 0.005)  # type: ignore[arg-type]
        rows += [checks.judge(each, timings) for each in group.checks]
    return rows


def test_a_correct_timer_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = prove(monkeypatch, Machine())
    assert checks.passed(rows), [render.plain_line(row) for row in rows if row.verdict != "ok"]
    assert {row.framework for row in rows} == {"cuda", "triton", "torch", "jax", "torch, cuda"}
    assert len(rows) == 2 * 3 + 2 * 3 + 3 + 5 + 2 * 4 + 1 + 3
    assert all(row.verdict == "ok" for row in rows)
    notes = " ".join(row.note for row in rows)
    assert "SM clock 1980 MHz by NVML, 1980 MHz by the device's timer" in notes
    assert "from first start to last end 10," in notes


def test_a_tracer_that_slows_kernels_down_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    machine.slowdown = 0.03
    assert [row.work for row in prove(monkeypatch, machine) if row.verdict == "off"] == [
        "262,144 blocks with arithmetic"
    ]


def span(activities: list[Activity]) -> tuple[float, list[Activity]]:
    return (max(a.end for a in activities) - min(a.start for a in activities)) / 1000, activities


def loses_one(activities: list[Activity]) -> tuple[float, list[Activity]]:
    return Machine.truth(activities[:1])


def kernels_only(activities: list[Activity]) -> tuple[float, list[Activity]]:
    return Machine.truth([a for a in activities if a.kind == "kernel"])


def fast_clock(activities: list[Activity]) -> tuple[float, list[Activity]]:
    return 1.02 * Machine.truth(activities)[0], activities


def adds_launches(activities: list[Activity]) -> tuple[float, list[Activity]]:
    return Machine.truth(activities)[0] + 1.0 * len(activities) - 1.0 * (len(activities) == 1), activities


def saturates(activities: list[Activity]) -> tuple[float, list[Activity]]:
    return min(Machine.truth(activities)[0], 1500.0), activities


@pytest.mark.parametrize(
    ("distort", "caught"),
    [
        (span, "asleep"),
        (loses_one, "in one call"),
        (kernels_only, "memset"),
        (fast_clock, "host's clock"),
        (adds_launches, "20 spins"),
        (saturates, "3,960,000 cycles"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wrong_timer_is_caught(
    monkeypatch: pytest.MonkeyPatch, distort: Callable[[list[Activity]], tuple[float, list[Activity]]], caught: str
) -> None:
    off = [row for row in prove(monkeypatch, Machine(distort)) if row.verdict == "off"]
    assert any(caught in row.work for row in off), [render.plain_line(row) for row in off]


@pytest.mark.parametrize(("adds_us", "verdict"), [(0.0, "ok"), (9.0, "ok"), (30.0, "off")])
def test_the_overhead_of_recording_is_bounded(adds_us: float, verdict: str) -> None:
    machine = Machine()
    machine.sample_adds_us = adds_us
    row = proof._overhead_row(machine, lambda: machine.launch(100.0), "a spin of 100 us")  # type: ignore[arg-type]
    assert row.verdict == verdict, render.plain_line(row)
    assert row.ratio == pytest.approx(1 + adds_us / 156, abs=0.01)
    assert not machine.tracing


@pytest.mark.parametrize(("adds_us", "verdict"), [(9.0, "ok"), (30.0, "off")])
def test_other_programs_of_the_host_do_not_decide_the_overhead(adds_us: float, verdict: str) -> None:
    """They delay three of five turns by a fifth, while these record."""

    class Busy(Machine):
        turns = 0

        def stop(self) -> None:
            self.turns += 1
            super().stop()

        def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
            super().sample(name, prepare, run)
            self.now += 40_000 * (self.turns % 5 < 3)

    machine = Busy()
    machine.sample_adds_us = adds_us
    row = proof._overhead_row(machine, lambda: machine.launch(100.0), "a spin of 100 us")  # type: ignore[arg-type]
    assert (row.verdict, row.ratio) == (verdict, pytest.approx(1 + adds_us / 156, abs=0.01))


def test_a_failing_recorder_is_one_row() -> None:
    def refuse(activities: list[Activity]) -> tuple[float, list[Activity]]:
        raise NoRecorderError("CUPTI dropped 3 records")

    row = proof._overhead_row(Machine(refuse), lambda: None, "nothing")  # type: ignore[arg-type]
    assert (row.verdict, row.note) == ("off", "NoRecorderError: CUPTI dropped 3 records")


def test_a_failing_group_is_rows_that_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    import suite.timing

    def refuse(*arguments: object, **options: object) -> None:
        raise NoRecorderError("CUPTI dropped 3 records")

    monkeypatch.setattr(suite.timing, "measure", refuse)
    group = groups.Group((Call("call", lambda: None, lambda result: None),), (check(expectations.times(1, "call")),))
    (row,) = proof._rows_of_group("title", lambda: group, None, {})
    assert (row.verdict, row.work, row.note) == ("off", "work", "NoRecorderError: CUPTI dropped 3 records")

    def broken() -> groups.Group:
        raise RuntimeError("capture\nfailed")

    (row,) = proof._rows_of_group("graph", broken, None, {})
    assert (row.verdict, row.work, row.note) == ("off", "graph", "RuntimeError: capture failed")


def test_a_missing_or_broken_framework_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()

    def broken(arena: object) -> Kit:
        raise ImportError("no libcuda")

    absent = {"triton": "triton not installed: pip install"}
    monkeypatch.setattr(frameworks, "get", lambda name: SimpleNamespace(missing=lambda where: absent.get(name)))
    monkeypatch.setattr(
        work,
        "_MAKERS",
        {"cuda": broken, "torch": lambda arena: machine.kit("torch"), "jax": lambda arena: machine.kit("jax")},
    )
    arena = SimpleNamespace(wait=machine.wait)
    kits, rows = work.kits(Device("cuda", 0, "NVIDIA H200", (9, 0)), arena)  # type: ignore[arg-type]
    assert [kit.name for kit in kits] == ["torch", "jax"]
    assert [(row.framework, row.verdict, row.note) for row in rows] == [
        ("cuda", "off", "ImportError: no libcuda"),
        ("triton", "not run", "triton not installed: pip install"),
    ]


def test_the_command_prints_writes_and_sets_the_exit_status(
    doctor: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(rows: list[ProofRow]) -> Callable[..., list[ProofRow]]:
        def prove(where: Device, on_row: Callable[[ProofRow], None], on_phase: Callable[[str], None]) -> list[ProofRow]:
            on_phase("spins")
            for row in rows:
                on_row(row)
            return rows

        return prove

    monkeypatch.setattr(proof, "prove", fake([OK, OFF]))
    assert doctor("--timer", "--device", "cpu", "--out", str(tmp_path)) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [render.plain_line(OK), render.plain_line(OFF)]
    assert "2 rows: 1 off, 1 ok; written to" in printed.err
    assert (tmp_path / "timer.csv").read_text(encoding="utf-8") == render.to_csv([OK, OFF])
    assert "# The timer on" in (tmp_path / "timer.md").read_text(encoding="utf-8")
    monkeypatch.setattr(proof, "prove", fake([OK]))
    assert doctor("--timer", "--device", "cpu", "--out", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    for name in ("timer.csv", "timer.md"):
        (tmp_path / name).write_text("mine", encoding="utf-8")
        assert doctor("--timer", "--device", "cpu", "--out", str(tmp_path)) == 2
        assert f"{tmp_path / name} is not a " in capsys.readouterr().err
        assert (tmp_path / name).read_text(encoding="utf-8") == "mine"
        (tmp_path / name).unlink()
