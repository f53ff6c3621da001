"""`doctor --measure`: on a CPU, and the tables of made-up readings."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.readings import contents
from rich.console import Console

from suite import hardware
from suite.core.errors import SuiteError
from suite.core.paths import ROOT
from suite.doctor import peaks_tables
from suite.doctor.local_device import torch_device
from suite.hardware import measured_peaks
from suite.hardware.device import Device
from suite.hardware.measured_peaks import Reading
from suite.timing import Timing, peaks


def test_the_tables() -> None:
    rows = {row[0]: row for row in peaks_tables.peak_rows(contents("NVIDIA H200"))}
    assert rows["memory"] == ("memory", "GB/s", "4,295", "2.0%", "4,800", "89%", "read, 8,192 MiB an array")
    assert rows["bf16"][2:] == ("797.9", "", "989.0", "81%", "M=N=K=8192")
    assert rows["fp16"][6] == "fp32, in which it can be computed"
    assert rows["fp8"] == ("fp8", "TFLOP/s", "", "", "", "", "RuntimeError: not here")
    assert peaks_tables.peak_rows(contents())[0][4:6] == ("", "")
    console = Console(record=True, width=160, file=io.StringIO())
    console.print(*peaks_tables.tables(contents("NVIDIA H200")))
    text = console.export_text()
    assert "Measured peaks of NVIDIA H200" in text
    assert "power cap" in text
    plain = peaks_tables.plain_lines(contents("NVIDIA H200"))
    assert "bf16: 797.9 TFLOP/s (M=N=K=8192), datasheet 989.0: 81%" in plain
    assert "fp8: not measured: RuntimeError: not here" in plain
    assert any(line.endswith("SM clock 1,755 MHz, held by power cap") for line in plain)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "STREAM_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr(peaks, "SIZES", {"cpu": (32, 64, 4096)})
    monkeypatch.setattr(peaks, "MAX_PRODUCT_US", 1000.0)
    monkeypatch.setattr(peaks, "BUDGET_S", 0.005)
    monkeypatch.setattr(measured_peaks, "STABLE", math.inf)  # the machine of a test is busy
    monkeypatch.setattr(hardware.host, "cpu_cache_bytes", lambda: 1 << 20)
    monkeypatch.setattr(hardware, "cpu_cache_bytes", lambda: 1 << 20)


def test_peaks_of_this_cpu(small: None, tmp_path: Path) -> None:
    phases: list[str] = []
    found = peaks.measure(torch.device("cpu"), "a CPU", None, {"date_utc": "2026-11-26"}, phases.append)
    assert {"fp32", "bf16"} <= set(found["tflops"])
    assert "tf32" in found["not_measured"]
    assert found["gb_per_s"] > 0
    assert (found["date_utc"], set(found["spread"])) == ("2026-11-26", {"memory", *found["tflops"]})
    assert all(spread >= 0 for spread in found["spread"].values())
    assert min(reading["passes"] for reading in found["readings"]) == 2
    assert phases[0] == "streams"
    assert not [phase for phase in phases if "4096" in phase and "fp32" in phase]  # too long
    names = [reading["name"].split(",")[0] for reading in found["readings"]]
    assert names[:4] == ["read", "write", "copy", "addition"]
    measured_peaks.write(tmp_path / measured_peaks.FILE, found)
    assert measured_peaks.find(tmp_path, "a CPU") is not None


def passes(*us: float, width: float = 0.01) -> Callable[[], list[Reading]]:
    """Measures a product of 1e12 flops that takes the next of these times."""
    left = iter(us)

    def once() -> list[Reading]:
        time = next(left)
        return [Reading("fp32", "M=N=K=512", 10**12, time, time * (1 - width), time * (1 + width))]

    return once


@pytest.mark.parametrize(
    ("us", "expected", "count", "stable"),
    [
        ((100.0, 101.0), 100.0, 2, True),
        ((900.0, 100.0, 500.0, 102.0), 100.0, 4, True),
        ((900.0, 800.0, 700.0, 600.0, 500.0, 400.0), 400.0, 6, False),
    ],
    ids=["at once", "after an interruption", "never"],
)
def test_a_peak_is_measured_until_it_repeats(us: tuple[float, ...], expected: float, count: int, stable: bool) -> None:
    (found,) = peaks.settled(passes(*us))
    assert (found.device_us, found.passes, found.is_stable) == (expected, count, stable)


def test_a_slow_machine_gets_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "MAX_PASSES_S", 0.0)
    (found,) = peaks.settled(passes(100.0, 101.0))
    assert (found.passes, found.is_stable) == (2, True)
    (found,) = peaks.settled(passes(100.0, 150.0, 101.0))
    assert (found.passes, found.is_stable) == (2, False)


def test_passes_that_agree_by_chance_amid_noise_are_not_stable() -> None:
    (found,) = peaks.settled(passes(*[100.0] * 6, width=0.5))
    assert (found.spread, found.passes, found.is_stable) == (0.0, 6, False)
    assert found.spread_text == "passes differ by 0%, 95% interval +-50%"


@pytest.mark.thorough
def test_a_peak_that_does_not_repeat_is_refused_and_the_file_stays(
    small: None, doctor: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """A ceiling of 0.0074 TFLOP/s, measured on a busy machine, once made every later row suspect."""
    monkeypatch.setattr(peaks, "_products", lambda *_: ([], {}))
    assert doctor("--measure", "--device", "cpu", "--out", str(tmp_path)) == 0
    monkeypatch.setattr(measured_peaks, "STABLE", -1.0)
    before = (tmp_path / "limits.json").read_text(encoding="utf-8")
    assert doctor("--measure", "--device", "cpu", "--out", str(tmp_path)) == 1
    assert "are not stable, and not kept: memory: passes differ by" in capsys.readouterr().err
    assert (tmp_path / "limits.json").read_text(encoding="utf-8") == before


@pytest.mark.slow
def test_the_command_prints_and_writes(
    small: None, doctor: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor("--measure", "--device", "cpu", "--out", str(tmp_path), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    written = json.loads((tmp_path / "limits.json").read_text(encoding="utf-8"))
    assert printed == written
    assert written["environment"]["packages"]["torch"]
    assert written["date_utc"] == written["environment"]["date_utc"]
    assert written["how"].startswith("the fastest of several passes")
    assert doctor("--measure", "--device", "cpu", "--out", str(tmp_path)) == 0
    assert "memory: " in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{}", "[1]", "mine"])
def test_a_file_that_is_not_of_limits_is_left_alone(
    doctor: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "limits.json").write_text(text, encoding="utf-8")
    assert doctor("--measure", "--device", "cpu", "--out", str(tmp_path)) == 2
    assert "limits.json is not a file of measured limits and is left alone" in capsys.readouterr().err
    assert (tmp_path / "limits.json").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--measure", "--timer"], "give one of the two"),
        (["--out", "x"], "--device and --out need --measure or --timer"),
        (["--device", "cpu"], "--device and --out need"),
        (["--timer", "--device", "cpu"], "a GPU's activity records"),
        (["--measure", "--device", "tpu"], "unknown 'tpu'"),
    ],
)
def test_invalid_options_are_refused(
    doctor: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert doctor(*arguments) == 2
    assert complaint in capsys.readouterr().err


def test_a_gpu_that_torch_cannot_use_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SuiteError, match=r"cannot use NVIDIA H200"):
        torch_device(Device("cuda", 0, "NVIDIA H200", (9, 0)))


def test_a_call_that_cannot_be_timed_is_an_error() -> None:
    with pytest.raises(SuiteError, match="copy cannot be timed: no CUPTI here"):
        peaks._reading("memory", "copy", 1, Timing("wall", "no CUPTI here", "cold"))


alone = pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="needs the GPU for itself: run without -n")


@pytest.mark.gpu
@alone
def test_measured_peaks_are_below_the_datasheet(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "suite", "doctor", "--measure", "--json", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    datasheet = hardware.peaks(found["device"])
    if datasheet is None:
        pytest.skip(f"the datasheets do not have {found['device']}")
    assert 0.5 * datasheet.gb_per_s < found["gb_per_s"] <= datasheet.gb_per_s
    for name, rate in found["tflops"].items():
        assert 0.4 * datasheet.tflops[name] < rate <= datasheet.tflops[name], name
