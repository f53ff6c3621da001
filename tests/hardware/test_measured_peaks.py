"""The file of measured peaks, and which limit applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.readings import READINGS, UNKNOWN, contents

from suite import hardware
from suite.core.errors import ResultsError
from suite.hardware import measured_peaks


def test_a_peak_is_the_fastest_reading() -> None:
    found = contents()
    assert found["gb_per_s"] == pytest.approx((8 << 30) / 2000e-6 / 1e9)
    assert found["tflops"]["bf16"] == pytest.approx(2 * 8192**3 / 1378e-6 / 1e12)
    assert found["tflops"]["fp16"] == found["tflops"]["fp32"] == pytest.approx(51.3, rel=0.01)
    assert found["readings"][0]["gb_per_s"] == found["gb_per_s"]
    assert list(found)[:3] == ["device", "gb_per_s", "tflops"]
    with pytest.raises(ValueError, match="no reading of the memory"):
        measured_peaks.document(UNKNOWN, READINGS[2:], {}, {})


def test_the_file_round_trips(tmp_path: Path) -> None:
    assert measured_peaks.find(tmp_path, UNKNOWN) is None
    path = tmp_path / "new" / measured_peaks.FILE
    measured_peaks.write(path, contents())
    found = measured_peaks.find(tmp_path / "new", UNKNOWN)
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
    path = tmp_path / measured_peaks.FILE
    measured_peaks.write(path, contents())
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(ResultsError, match=r"limits.json: not a readable file of measured limits .*doctor --measure"):
        measured_peaks.find(tmp_path, UNKNOWN)


def test_a_file_of_another_device_is_refused(tmp_path: Path) -> None:
    measured_peaks.write(tmp_path / measured_peaks.FILE, contents("NVIDIA H200 NVL"))
    with pytest.raises(ResultsError, match="limits of 'NVIDIA H200 NVL', and this is 'NVIDIA X900'"):
        measured_peaks.find(tmp_path, UNKNOWN)
    (tmp_path / "folder" / measured_peaks.FILE).mkdir(parents=True)
    with pytest.raises(ResultsError, match="not a readable file"):
        measured_peaks.find(tmp_path / "folder", UNKNOWN)


def test_the_datasheet_takes_precedence_over_measured_peaks(tmp_path: Path) -> None:
    measured_peaks.write(tmp_path / measured_peaks.FILE, contents())
    ours = measured_peaks.find(tmp_path, UNKNOWN)
    assert hardware.limit("NVIDIA H200", 4800, 0, "float32", None, ours) == (pytest.approx(0.001), "memory (datasheet)")
    assert hardware.limit("NVIDIA H200", 4800, 0, "float32") == (pytest.approx(0.001), "memory (datasheet)")
    flops = 2 * 8192**3
    assert hardware.limit(UNKNOWN, 1, flops, "bfloat16", "ieee", ours) == (
        pytest.approx(1378),
        "arithmetic (measured)",
    )
    assert hardware.limit(UNKNOWN, 8 << 30, 1, "bfloat16", "ieee", ours) == (
        pytest.approx(2000),
        "memory (measured)",
    )
    assert hardware.limit(UNKNOWN, 1, 1, "float32", "tf32", ours) is None  # not measured
    assert hardware.limit(UNKNOWN, 1, 1, "float32") is None
    # in the datasheets, without a rate for this arithmetic
    fp8 = replace(ours, tflops={"fp8": 100.0}) if ours else None
    a100 = "NVIDIA A100-SXM4-80GB"
    assert hardware.limit(a100, 1, 10**12, "float8_e4m3fn", None, fp8) == (pytest.approx(1e4), "arithmetic (measured)")
