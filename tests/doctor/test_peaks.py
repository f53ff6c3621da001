"""`doctor --measure`: on a CPU, and the tables of made-up readings."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fakes.readings import contents
from rich.console import Console

from suite import hardware
from suite.core.errors import SuiteError
from suite.core.paths import ROOT
from suite.doctor import peaks, peaks_tables
from suite.doctor.local_device import array_bytes, torch_device
from suite.hardware import measured_peaks
from suite.hardware.device import Device
from suite.timing import Timing


def test_the_tables() -> None:
    rows = {row[0]: row for row in peaks_tables.peak_rows(contents("NVIDIA H200"))}
    assert rows["memory"] == ("memory", "GB/s", "4,295", "4,800", "89%", "read, 8,192 MiB an array")
    assert rows["bf16"][2:] == ("797.9", "989.0", "81%", "M=N=K=8192")
    assert rows["fp16"][5] == "fp32, in which it can be computed"
    assert rows["fp8"] == ("fp8", "TFLOP/s", "", "", "", "RuntimeError: not here")
    assert peaks_tables.peak_rows(contents())[0][3:5] == ("", "")
    console = Console(record=True, width=160, file=io.StringIO())
    console.print(*peaks_tables.tables(contents("NVIDIA H200")))
    text = console.export_text()
    assert "What NVIDIA H200 reaches" in text
    assert "power cap" in text
    plain = peaks_tables.plain_lines(contents("NVIDIA H200"))
    assert "bf16: 797.9 TFLOP/s (M=N=K=8192), datasheet 989.0: 81%" in plain
    assert "fp8: not measured: RuntimeError: not here" in plain
    assert any(line.endswith("SM clock 1,755 MHz, held by power cap") for line in plain)


@pytest.mark.parametrize(
    ("free", "expected"), [(None, 8 << 30), (140 << 30, 8 << 30), (24 << 30, 1 << 30), (1 << 30, 1 << 26), (0, 1 << 16)]
)
def test_arrays_fit_into_memory(free: int | None, expected: int) -> None:
    assert array_bytes(8 << 30, free) == expected


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "STREAM_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr(peaks, "SIZES", {"cpu": (32, 64, 4096)})
    monkeypatch.setattr(peaks, "MAX_PRODUCT_US", 1000.0)
    monkeypatch.setattr(peaks, "BUDGET_S", 0.01)
    monkeypatch.setattr(hardware.host, "cpu_cache_bytes", lambda: 1 << 20)
    monkeypatch.setattr(hardware, "cpu_cache_bytes", lambda: 1 << 20)


def test_peaks_of_this_cpu(small: None, tmp_path: Path) -> None:
    phases: list[str] = []
    found = peaks.measure(Device("cpu", name="a CPU"), {}, phases.append)
    assert {"fp32", "bf16"} <= set(found["tflops"])
    assert "tf32" in found["not_measured"]
    assert found["gb_per_s"] > 0
    assert phases[0] == "streams"
    assert not [phase for phase in phases if "4096" in phase and "fp32" in phase]  # too long
    names = [reading["name"].split(",")[0] for reading in found["readings"]]
    assert names[:4] == ["read", "write", "copy", "addition"]
    measured_peaks.write(tmp_path / measured_peaks.FILE, found)
    assert measured_peaks.find(tmp_path, "a CPU") is not None


@pytest.mark.slow
def test_the_command_prints_and_writes(
    small: None, doctor: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor("--measure", "--device", "cpu", "--out", str(tmp_path), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    written = json.loads((tmp_path / "limits.json").read_text(encoding="utf-8"))
    assert printed == written
    assert written["environment"]["packages"]["torch"]
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
        (["--out", "x"], "--device and --out go with --measure or --timer"),
        (["--device", "cpu"], "--device and --out go with"),
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
