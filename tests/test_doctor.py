"""`doctor --measure` and `doctor --timer`: what is made of the numbers, with the numbers made up."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from suite import hardware
from suite.cli import main as cli
from suite.core.errors import ResultsError, SuiteError, UsageError
from suite.doctor import peaks as limits
from suite.doctor.local_device import array_bytes, torch_device
from suite.doctor.timer_proof import checks, groups, timer, work
from suite.doctor.timer_proof.checks import Check, Line
from suite.doctor.timer_proof.work import Kit
from suite.hardware import measured
from suite.hardware.device import Device
from suite.hardware.measured import Reading
from suite.timing import Activity, Call, NoRecorderError, Timing, union_ns
from suite.timing.recorder import Sample
from suite.timing.sampling import Measurement

ROOT = Path(__file__).resolve().parents[1]
UNKNOWN = "NVIDIA X900"

# ---- measured limits -------------------------------------------------------------------------------------------------

READINGS = [
    Reading("memory", "read, 8,192 MiB an array", 8 << 30, 2000.0, 1990.0, 2010.0, 20, "cupti", 1980.0, 400.0, ""),
    Reading("memory", "copy, 8,192 MiB an array", 16 << 30, 4200.0),
    Reading("fp32", "M=N=K=4096", 2 * 4096**3, 2677.0),
    Reading("bf16", "M=N=K=4096", 2 * 4096**3, 178.0),
    Reading("bf16", "M=N=K=8192", 2 * 8192**3, 1378.0, clock_reasons="power cap", clock_sm_mhz=1755.0),
    Reading("fp16", "M=N=K=512", 2 * 512**3, 1e6),
]


def contents(device: str = UNKNOWN) -> dict[str, Any]:
    return measured.document(device, READINGS, {"fp8": "RuntimeError: not here"}, {"date_utc": "2026-11-21"})


def test_a_ceiling_is_the_fastest_reading() -> None:
    found = contents()
    assert found["gb_per_s"] == pytest.approx((8 << 30) / 2000e-6 / 1e9)
    assert found["tflops"]["bf16"] == pytest.approx(2 * 8192**3 / 1378e-6 / 1e12)
    assert found["tflops"]["fp16"] == found["tflops"]["fp32"] == pytest.approx(51.3, rel=0.01)
    assert found["readings"][0]["gb_per_s"] == found["gb_per_s"]
    assert list(found)[:3] == ["device", "gb_per_s", "tflops"]
    with pytest.raises(ValueError, match="no reading of the memory"):
        measured.document(UNKNOWN, READINGS[2:], {}, {})


def test_limits_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert measured.find(tmp_path, UNKNOWN) is None
    path = tmp_path / "new" / measured.FILE
    measured.write(path, contents())
    found = measured.find(tmp_path / "new", UNKNOWN)
    assert found is not None
    assert (found.gb_per_s, found.tflops) == (contents()["gb_per_s"], contents()["tflops"])
    assert found.source == str(path)
    assert path.read_text(encoding="utf-8").startswith('{\n  "device": "NVIDIA X900",\n  "gb_per_s": 429')


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[1, 2]",
        lambda text: "null",
        lambda text: "[" * 100_000,
        lambda text: '{"device": "NVIDIA X900"}',
        lambda text: text.replace('"tflops": {', '"tflops": {"fp8": -1, ', 1),
        lambda text: text.replace('"tflops": {', '"tflops": {"fp8": true, ', 1),
        lambda text: text.replace('"gb_per_s": 4', '"gb_per_s": "4", "x": 4', 1),
        lambda text: text.replace('"gb_per_s": 4', '"gb_per_s": NaN, "x": 4', 1),
        lambda text: text.replace('"gb_per_s": 4', '"gb_per_s": Infinity, "x": 4', 1),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[str], str]) -> None:
    path = tmp_path / measured.FILE
    measured.write(path, contents())
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(ResultsError, match=r"limits.json: not a readable file of measured limits .*doctor --measure"):
        measured.find(tmp_path, UNKNOWN)


def test_limits_of_another_device_are_refused(tmp_path: Path) -> None:
    measured.write(tmp_path / measured.FILE, contents("NVIDIA H200 NVL"))
    with pytest.raises(ResultsError, match="limits of 'NVIDIA H200 NVL', and this is 'NVIDIA X900'"):
        measured.find(tmp_path, UNKNOWN)
    (tmp_path / "folder" / measured.FILE).mkdir(parents=True)
    with pytest.raises(ResultsError, match="not a readable file"):
        measured.find(tmp_path / "folder", UNKNOWN)


def test_the_datasheet_comes_first_then_what_was_measured(tmp_path: Path) -> None:
    measured.write(tmp_path / measured.FILE, contents())
    ours = measured.find(tmp_path, UNKNOWN)
    assert hardware.limit("NVIDIA H200", 4800, 0, "float32", None, ours) == (pytest.approx(0.001), "memory (datasheet)")
    assert hardware.limit("NVIDIA H200", 4800, 0, "float32") == (pytest.approx(0.001), "memory (datasheet)")
    flops = 2 * 8192**3
    assert hardware.limit(UNKNOWN, 1, flops, "bfloat16", "ieee", ours) == (pytest.approx(1378), "arithmetic (measured)")
    assert hardware.limit(UNKNOWN, 8 << 30, 1, "bfloat16", "ieee", ours) == (pytest.approx(2000), "memory (measured)")
    assert hardware.limit(UNKNOWN, 1, 1, "float32", "tf32", ours) is None  # it was not measured
    assert hardware.limit(UNKNOWN, 1, 1, "float32") is None
    # a cited device without a cited rate for this arithmetic
    fp8 = replace(ours, tflops={"fp8": 100.0}) if ours else None
    a100 = "NVIDIA A100-SXM4-80GB"
    assert hardware.limit(a100, 1, 10**12, "float8_e4m3fn", None, fp8) == (pytest.approx(1e4), "arithmetic (measured)")


def test_the_table_of_limits() -> None:
    rows = {row[0]: row for row in limits.rows(contents("NVIDIA H200"))}
    assert rows["memory"] == ("memory", "GB/s", "4,295", "4,800", "89%", "read, 8,192 MiB an array")
    assert rows["bf16"][2:] == ("797.9", "989.0", "81%", "M=N=K=8192")
    assert rows["fp16"][5] == "fp32, in which it can be computed"
    assert rows["fp8"] == ("fp8", "TFLOP/s", "", "", "", "RuntimeError: not here")
    assert limits.rows(contents())[0][3:5] == ("", "")
    console = Console(record=True, width=160, file=io.StringIO())
    console.print(*limits.tables(contents("NVIDIA H200")))
    text = console.export_text()
    assert "What NVIDIA H200 reaches" in text
    assert "power cap" in text
    plain = limits.plain_lines(contents("NVIDIA H200"))
    assert "bf16: 797.9 TFLOP/s (M=N=K=8192), datasheet 989.0: 81%" in plain
    assert "fp8: not measured: RuntimeError: not here" in plain
    assert any(line.endswith("SM clock 1,755 MHz, held by power cap") for line in plain)


@pytest.mark.parametrize(
    ("free", "expected"), [(None, 8 << 30), (140 << 30, 8 << 30), (24 << 30, 1 << 30), (1 << 30, 1 << 26), (0, 1 << 16)]
)
def test_arrays_fit(free: int | None, expected: int) -> None:
    assert array_bytes(8 << 30, free) == expected


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAM_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr(limits, "SIZES", {"cpu": (32, 64, 4096)})
    monkeypatch.setattr(limits, "LONGEST_US", 1000.0)
    monkeypatch.setattr(limits, "BUDGET_S", 0.01)
    monkeypatch.setattr(hardware.host, "cpu_cache_bytes", lambda: 1 << 20)
    monkeypatch.setattr(hardware, "cpu_cache_bytes", lambda: 1 << 20)


def test_limits_of_this_cpu(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    found = limits.measure(Device("cpu", name="a CPU"), {}, told.append)
    assert {"fp32", "bf16"} <= set(found["tflops"])
    assert "tf32" in found["not_measured"]
    assert found["gb_per_s"] > 0
    assert told[0] == "streams"
    assert not [doing for doing in told if "4096" in doing and "fp32" in doing]  # too long
    names = [reading["name"].split(",")[0] for reading in found["readings"]]
    assert names[:4] == ["read", "write", "copy", "addition"]
    measured.write(tmp_path / measured.FILE, found)
    assert measured.find(tmp_path, "a CPU") is not None


def test_doctor_measures_and_keeps(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--measure", "--device", "cpu", "--out", str(tmp_path), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "limits.json").read_text(encoding="utf-8"))
    assert printed == kept
    assert kept["environment"]["packages"]["torch"]
    assert run(monkeypatch, "--measure", "--device", "cpu", "--out", str(tmp_path)) == 0
    assert "memory: " in capsys.readouterr().out


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["suite", "doctor", *arguments])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--measure", "--timer"], "give one of the two"),
        (["--out", "x"], "--device and --out go with --measure or --timer"),
        (["--device", "cpu"], "--device and --out go with"),
        (["--timer", "--device", "cpu"], "a GPU's activity records"),
        (["--measure", "--device", "tpu"], "unknown 'tpu'"),
    ],
)
def test_doctor_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert complaint in capsys.readouterr().err


def test_a_gpu_that_torch_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SuiteError, match=r"cannot use NVIDIA H200"):
        torch_device(Device("cuda", 0, "NVIDIA H200", (9, 0)))


def test_a_timing_without_a_number_is_no_limit() -> None:
    with pytest.raises(SuiteError, match="copy cannot be timed: no CUPTI here"):
        limits._reading("memory", "copy", 1, Timing("wall", "no CUPTI here", "cold"))


# ---- the timer's proof: verdicts -------------------------------------------------------------------------------------


def timing(us: float | None, *kinds: str, clock: float | None = 1980.0, gap_us: float = 0.0, **more: Any) -> Timing:
    """A record of equal activities, one after the other, `gap_us` between them."""
    kinds = kinds or ("kernel",)
    starts = [int(1000 * i * ((us or 0) / len(kinds) + gap_us)) for i in range(len(kinds))]
    length = int(1000 * (us or 0) / len(kinds))
    found = tuple(Activity(k, at, at + length, k) for k, at in zip(kinds, starts, strict=True))
    known: dict[str, Any] = {"samples": 9, "device_us": us, "clock_sm_mhz": clock, "activities": found, **more}
    return Timing("cupti", "", "warm", **known)


def check(expect: Any, **more: Any) -> Check:
    return Check("cuda", "work", "call", expect, "because", **more)


@pytest.mark.parametrize(
    ("us", "expected", "verdict"),
    [
        (1009.0, 1000.0, "ok"),
        (1011.0, 1000.0, "off"),
        (989.0, 1000.0, "off"),
        (10.29, 10.0, "ok"),
        (10.31, 10.0, "off"),
        (19.69, 20.0, "off"),
        (20.2, 20.1, "ok"),
        (20.31, 20.1, "off"),  # 1% from here on
    ],
)
def test_the_tolerance(us: float, expected: float, verdict: str) -> None:
    line = checks.judge(check(lambda timings: expected), {"call": timing(us)})
    assert line.verdict == verdict
    assert line.ratio == pytest.approx(us / expected)
    assert line.low_us is not None
    assert line.high_us is not None
    assert line.low_us < expected < line.high_us


def test_expectations() -> None:
    timings = {"a": timing(10.0), "b": timing(5.0, clock=None), "c": timing(None), "d": timing(7.0, latency_us=9.0)}
    assert checks.times(3, "a")(timings) == 30
    assert checks.total("a", "b")(timings) == 15
    assert checks.cycles(1980, "a")(timings) == 1.0
    assert checks.cycles(1980, "a", after="b")(timings) == 6.0
    assert checks.cycles(1980, "b")(timings) is None
    assert checks.host_clock("d")(timings) == 9.0
    for missing in ("c", "e"):
        with pytest.raises(checks.UnknownError, match=f"{missing} was not recorded"):
            checks.times(1, missing)(timings)


def test_a_line_says_why_it_has_no_verdict() -> None:
    ours = {"call": timing(10.0)}
    assert checks.judge(check(checks.times(2, "lost")), ours).verdict == "off"
    assert checks.judge(check(lambda timings: None), ours).verdict == "not run"
    assert checks.judge(check(checks.times(1, "call")), {}).note == "not recorded"
    silent = {"call": timing(None, error="cupti saw no kernel, copy or fill of this call")}
    line = checks.judge(check(checks.times(1, "call")), silent)
    assert (line.verdict, line.note) == ("off", "cupti saw no kernel, copy or fill of this call")


def test_the_record_must_hold_what_was_launched() -> None:
    pair = {"call": timing(100.0, "kernel", "memset")}
    same = checks.times(1, "call")
    line = checks.judge(check(same), pair)
    assert (line.verdict, line.activities) == ("off", "1 kernel, 1 memset")
    assert "should hold 1 kernel" in line.note
    assert checks.judge(check(same, activities={"kernel": 1, "memset": 1}), pair).verdict == "ok"
    assert checks.judge(check(same, activities=None), pair).verdict == "ok"
    assert (
        checks.judge(check(same, activities={"kernel": 2}), {"call": timing(9.0, "kernel", "kernel")}).verdict == "ok"
    )


def test_a_gap_must_have_been_there_and_an_overlap_too() -> None:
    apart, close = timing(100.0, "kernel", "kernel", gap_us=2000), timing(100.0, "kernel", "kernel")
    assert checks.idle_of(1000)(apart) == ""
    assert checks.idle_of(1000)(close) == "the device was idle for 0 us only"
    assert checks.overlap_of(20)(close) == "the kernels overlapped for 0 us only"
    assert checks.overlap_of(20)(timing(100.0, "kernel", "kernel", gap_us=-25)) == ""
    assert checks.idle_of(1)(timing(5.0, activities=())) != ""
    line = checks.judge(
        check(checks.times(1, "call"), activities={"kernel": 2}, also=checks.idle_of(1000)), {"call": close}
    )
    assert line.verdict == "off"


def test_flags_are_told_and_do_not_decide() -> None:
    line = checks.judge(check(checks.times(1, "call")), {"call": timing(9.0, flags=("1 other process on the device",))})
    assert (line.verdict, line.note) == ("ok", "1 other process on the device")


OK = Line("cuda", "spin", 10.0, 10.0, 1.0, 9.7, 10.3, "ok", "by definition", "1 kernel", 9)
OFF = Line("torch", "a|b", 12.0, 10.0, 1.2, 9.7, 10.3, "off", "by definition", "2 kernels", 9, "the record should hold")
ABSENT = checks.without("jax", "everything", "not run", "jax not installed")


def test_it_passes_if_no_line_is_off_and_one_is_ok() -> None:
    assert checks.passed([OK, ABSENT])
    assert not checks.passed([OK, OFF])
    assert not checks.passed([ABSENT])
    assert not checks.passed([])
    assert checks.summary([OK, OFF, ABSENT]) == "3 lines: 1 off, 1 not run, 1 ok"


def test_the_table_in_every_form() -> None:
    lines = [OK, OFF, ABSENT]
    rows = list(csv.DictReader(checks.to_csv(lines).splitlines()))
    assert [row["verdict"] for row in rows] == ["ok", "off", "not run"]
    assert (float(rows[1]["ratio"]), rows[2]["recorded_us"]) == (1.2, "")
    environment = {"device": {"name": "NVIDIA H200"}, "command": "python -m suite doctor --timer", "packages": {}}
    text = checks.markdown(lines, environment)
    assert text.startswith("# The timer on NVIDIA H200\n")
    assert "a\\|b" in text
    assert "2 kernels; the record should hold" in text
    json.loads(json.dumps(checks.document(lines, environment), allow_nan=False))
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(checks.rich_table(lines, "[title]"))
    assert "[title]" in console.export_text()
    assert checks.plain_line(OK).startswith(
        "ok       cuda  spin  recorded 10.000 us  expected 10.000 us (by definition)"
    )
    assert checks.plain_line(ABSENT) == "not run  jax  everything  jax not installed"


# ---- the timer's proof, on a device made of Python -------------------------------------------------------------------


class Machine:
    """A GPU in simulated time that does what it is told in the time it should take, and a recorder of it.

    `lie` turns the intervals of a sample, in ns, and the names of the activities into what the recorder says.
    """

    CLOCK_MHZ, LAUNCH_US, BYTES_PER_US = 1980.0, 1.2, 4_300_000.0
    on_host = False
    name = "cupti"

    def __init__(self, lie: Callable[[list[Activity]], tuple[float, list[Activity]]] | None = None) -> None:
        self.lie = lie or self.truth
        self.tracing = False
        self.slowdown = self.sample_adds_us = 0.0
        self.now = self.free_at = 0
        self.running: list[Activity] = []
        self.samples: list[Sample] = []
        self.jitter = random.Random(1)

    @staticmethod
    def truth(activities: list[Activity]) -> tuple[float, list[Activity]]:
        return union_ns((a.start, a.end) for a in activities) / 1000, activities

    def launch(self, us: float, kind: str = "kernel") -> None:
        self.now += 5_000
        start = max(self.now, self.free_at)
        self.free_at = start + round(1000 * (us + self.LAUNCH_US + self.jitter.uniform(-0.03, 0.03)))
        self.running.append(Activity(kind, start, self.free_at, kind))

    def wait(self, result: object = None) -> None:
        self.now = max(self.now, self.free_at) + 8_000

    def sleep(self, seconds: float) -> None:
        self.now += int(1e9 * seconds)

    def kit(self, name: str) -> Kit:
        stream = lambda factor, kind: lambda n: self.launch(factor * n / self.BYTES_PER_US, kind)  # noqa: E731
        return Kit(
            name,
            self.wait,
            add_one=stream(8, "kernel"),
            spin=None if name == "jax" else lambda cycles: self.launch(cycles / self.CLOCK_MHZ),
            fill=stream(1, "memset") if name == "cuda" else None,
            copy=stream(2, "memcpy") if name == "cuda" else None,
            blocks=self.blocks if name == "cuda" else None,
        )

    def blocks(self, count: int) -> None:
        self.launch(count / 1000 * (1 + self.slowdown * self.tracing))

    def span_us(self, blocks: int) -> float:
        return (self.running[-1].end - self.running[-1].start) / 1000 - self.LAUNCH_US

    # what a target has
    def clock(self) -> int:
        return self.now

    def synchronize(self) -> None:
        self.now = max(self.now, self.free_at)

    def evict(self) -> None:
        self.now += 50_000

    def state(self) -> hardware.State:
        return hardware.State(self.CLOCK_MHZ, 3201, 40, 300.0, 0, 0)

    def energy_mj(self) -> None:
        return None

    # what a recorder has
    def recorder(self) -> Machine:
        return self

    def start(self) -> None:
        self.tracing, self.samples = True, []

    def stop(self) -> None:
        self.tracing = False

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        prepare()
        self.synchronize()
        self.running = []
        run()
        self.synchronize()
        self.now += round(1000 * self.sample_adds_us)
        us, seen = self.lie(list(self.running))
        self.samples.append(Sample(name, us, seen))

    def collect(self) -> list[Sample]:
        samples, self.samples = self.samples, []
        return samples

    def one_at_a_time(self) -> None: ...


def prove(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> list[Line]:
    """Every group that asks nothing of torch.cuda, through the suite's own sampling."""
    monkeypatch.setattr(groups.time, "sleep", machine.sleep)
    arena = SimpleNamespace(
        elements=1 << 30, elapsed=torch.tensor([1_980_000, 1_000_000]), wait=machine.wait, span_us=machine.span_us
    )
    kits = [machine.kit(name) for name in work.FRAMEWORKS]
    everything = groups.makers(kits, arena, machine.CLOCK_MHZ, 60 << 20)  # type: ignore[arg-type]
    timings: dict[str, Timing] = {}
    lines = []
    for title, make in everything:
        if title in ("coldness: the reference", "coldness", "overlap", "graph"):
            continue
        group = make()
        timings |= Measurement(group.calls, machine, group.cache).measure(0.05, 0.005, False)  # type: ignore[arg-type]
        lines += [checks.judge(each, timings) for each in group.checks]
    return lines


def test_a_true_timer_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = prove(monkeypatch, Machine())
    assert checks.passed(lines), [checks.plain_line(line) for line in lines if line.verdict != "ok"]
    assert {line.framework for line in lines} == {"cuda", "triton", "torch", "jax", "torch, cuda"}
    assert len(lines) == 2 * 3 + 2 * 3 + 3 + 5 + 2 * 4 + 1 + 3
    assert all(line.verdict == "ok" for line in lines)
    notes = " ".join(line.note for line in lines)
    assert "SM clock 1980 MHz by NVML, 1980 MHz by the device's timer" in notes
    assert "from first start to last end 10," in notes


def test_a_tracer_that_slows_kernels_down_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    machine.slowdown = 0.03
    assert [line.work for line in prove(monkeypatch, machine) if line.verdict == "off"] == [
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
    ("lie", "caught"),
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
def test_a_timer_that_lies_is_caught(
    monkeypatch: pytest.MonkeyPatch, lie: Callable[[list[Activity]], tuple[float, list[Activity]]], caught: str
) -> None:
    off = [line for line in prove(monkeypatch, Machine(lie)) if line.verdict == "off"]
    assert any(caught in line.work for line in off), [checks.plain_line(line) for line in off]


@pytest.mark.parametrize(("adds_us", "verdict"), [(0.0, "ok"), (9.0, "ok"), (30.0, "off")])
def test_what_recording_costs_is_bounded(adds_us: float, verdict: str) -> None:
    machine = Machine()
    machine.sample_adds_us = adds_us
    line = timer._cost(machine, lambda: machine.launch(100.0), "a spin of 100 us")  # type: ignore[arg-type]
    assert line.verdict == verdict, checks.plain_line(line)
    assert line.ratio == pytest.approx(1 + adds_us / 156, abs=0.01)
    assert not machine.tracing


def test_a_recorder_that_fails_costs_a_line() -> None:
    def refuse(activities: list[Activity]) -> tuple[float, list[Activity]]:
        raise NoRecorderError("CUPTI dropped 3 records")

    line = timer._cost(Machine(refuse), lambda: None, "nothing")  # type: ignore[arg-type]
    assert (line.verdict, line.note) == ("off", "NoRecorderError: CUPTI dropped 3 records")


def test_a_group_that_fails_is_lines_that_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    import suite.timing

    def refuse(*arguments: object, **options: object) -> None:
        raise NoRecorderError("CUPTI dropped 3 records")

    monkeypatch.setattr(suite.timing, "measure", refuse)
    group = groups.Group((Call("call", lambda: None, lambda result: None),), (check(checks.times(1, "call")),))
    (line,) = timer._group("title", lambda: group, None, {})
    assert (line.verdict, line.work, line.note) == ("off", "work", "NoRecorderError: CUPTI dropped 3 records")

    def broken() -> groups.Group:
        raise RuntimeError("capture\nfailed")

    (line,) = timer._group("graph", broken, None, {})
    assert (line.verdict, line.work, line.note) == ("off", "graph", "RuntimeError: capture failed")


def test_a_framework_that_is_missing_or_broken_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()

    def broken(arena: object) -> Kit:
        raise ImportError("no libcuda")

    absent = {"triton": "triton not installed: pip install"}
    monkeypatch.setattr(work.backends, "adapter", lambda name: SimpleNamespace(missing=lambda where: absent.get(name)))
    monkeypatch.setattr(
        work,
        "_MAKERS",
        {"cuda": broken, "torch": lambda arena: machine.kit("torch"), "jax": lambda arena: machine.kit("jax")},
    )
    arena = SimpleNamespace(wait=machine.wait)
    kits, lines = work.kits(Device("cuda", 0, "NVIDIA H200", (9, 0)), arena)  # type: ignore[arg-type]
    assert [kit.name for kit in kits] == ["torch", "jax"]
    assert [(line.framework, line.verdict, line.note) for line in lines] == [
        ("cuda", "off", "ImportError: no libcuda"),
        ("triton", "not run", "triton not installed: pip install"),
    ]


def test_doctor_timer_prints_keeps_and_judges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(lines: list[Line]) -> Callable[..., list[Line]]:
        def prove(where: Device, on_line: Callable[[Line], None], tell: Callable[[str], None]) -> list[Line]:
            tell("spins")
            for line in lines:
                on_line(line)
            return lines

        return prove

    monkeypatch.setattr(timer, "prove", fake([OK, OFF]))
    assert run(monkeypatch, "--timer", "--device", "cpu", "--out", str(tmp_path)) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [checks.plain_line(OK), checks.plain_line(OFF)]
    assert "2 lines: 1 off, 1 ok; written to" in printed.err
    assert (tmp_path / "timer.csv").read_text(encoding="utf-8") == checks.to_csv([OK, OFF])
    assert "# The timer on" in (tmp_path / "timer.md").read_text(encoding="utf-8")
    monkeypatch.setattr(timer, "prove", fake([OK]))
    assert run(monkeypatch, "--timer", "--device", "cpu", "--out", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True


# ---- the work itself -------------------------------------------------------------------------------------------------


def test_the_cuda_work_compiles_without_spills() -> None:
    from cuda_ref import build, compiler

    if compiler.nvcc() is None:
        pytest.skip("needs nvcc")
    found = {resources.function.split("(")[0]: resources for resources in build.resources(work.SOURCE, "sm_90a")}
    assert set(found) == {"spin_kernel", "add_one_kernel", "stamped_kernel"}
    assert all(resources.stack_bytes == 0 for resources in found.values())
    assert not build.supports(work.SOURCE, "host")  # it reads clocks that a host has not


def test_the_triton_work_compiles_for_a_gpu_that_is_not_here() -> None:
    code = (
        "import triton\n"
        "from triton.backends.compiler import GPUTarget\n"
        "from triton.compiler import ASTSource\n"
        "from suite.doctor.timer_proof.work_triton import add_one_kernel, spin_kernel\n"
        "target = GPUTarget('cuda', 90, 32)\n"
        "spin = ASTSource(spin_kernel, signature={'cycles': 'i32', 'elapsed_ptr': '*i64'}, constexprs={})\n"
        "ptx = triton.compile(spin, target=target, options={'num_warps': 1}).asm['ptx']\n"
        "assert ptx.count('%clock64') == 2, ptx\n"
        "signature = {'x_ptr': '*fp32', 'out_ptr': '*fp32', 'N': 'i32', 'BLOCK': 'constexpr'}\n"
        "add = ASTSource(add_one_kernel, signature=signature, constexprs={'BLOCK': 2048})\n"
        "triton.compile(add, target=target)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_lengths_of_spins() -> None:
    spins = groups.Spins(1980.0)
    assert spins.of(1000) == 1_980_000
    assert math.isclose(spins.clock_step, 15 / 1980)
    with pytest.raises(UsageError):
        timer.prove(Device("cpu", name="a CPU"))


# ---- on a GPU --------------------------------------------------------------------------------------------------------


alone = pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="needs the GPU for itself: run without -n")


@pytest.mark.gpu
@alone
def test_the_timer_is_proved_on_this_gpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "suite", "doctor", "--timer", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.gpu
@alone
def test_measured_limits_are_below_the_cited_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "suite", "doctor", "--measure", "--json", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    cited = hardware.peaks(found["device"])
    if cited is None:
        pytest.skip(f"no peaks are cited for {found['device']}")
    assert 0.5 * cited.gb_per_s < found["gb_per_s"] <= cited.gb_per_s
    for name, rate in found["tflops"].items():
        assert 0.4 * cited.tflops[name] < rate <= cited.tflops[name], name
