"""A row that is faster than a measured peak allows has the peaks measured again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.readings import contents
from scripted_worker import AGREES, Recorded, time_of

from suite.core import paths
from suite.hardware import measured_peaks
from suite.hardware.device import Device
from suite.hardware.measured_peaks import Reading
from suite.timing import peaks
from suite.worker.protocol import Failed, PeaksReply, PeaksRequest
from suite.worker.session import Session

UNKNOWN = Device("cuda", 0, "NVIDIA X900", (9, 0))
LEAST_US = 3 * 2**30 / 1e12 * 1e6
"""The shortest time of the case at 1,000 GB/s."""


def limits(gb_per_s: float) -> dict[str, Any]:
    return {**contents(), "gb_per_s": gb_per_s, "tflops": {"fp32": 50.0}}


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file of limits of an older version: the memory moves 1,000 GB/s at most, and no spread is known."""
    monkeypatch.setattr(paths, "results", lambda: tmp_path)
    path = UNKNOWN.results_folder / measured_peaks.FILE
    old = {name: value for name, value in limits(1000.0).items() if name in ("device", "gb_per_s", "tflops")}
    measured_peaks.write(path, old)
    return path


def answers(us: float, reply: dict[str, Any], asked: list[str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["do"])
        if request["do"] == "peaks":
            return reply
        if request["do"] == "check":
            return AGREES
        return {"timings": {name: time_of(us) for name in request["implementations"]}}

    return answer


def test_a_row_within_the_limits_measures_nothing(compare: Any, file: Path) -> None:
    asked: list[str] = []
    (row,) = compare(answers(2 * LEAST_US, {}, asked), device=UNKNOWN)
    assert (row.of_limit, row.limit, asked) == (pytest.approx(0.5), "memory (measured)", ["check", "time"])


def test_a_limit_that_a_row_passes_is_measured_again(compare: Any, file: Path) -> None:
    asked: list[str] = []
    observer = Recorded()
    answer = answers(LEAST_US / 2, {"contents": limits(4000.0)}, asked)
    rows = compare(answer, device=UNKNOWN, shapes=("N=268435456", "N=536870912"), observer=observer)
    assert asked.count("peaks") == 1
    assert (rows[0].of_limit, rows[0].suspect, rows[0].remarks) == (pytest.approx(0.5), False, "")
    text = "a row is faster than limits.json allows: measuring the limits of NVIDIA X900 again"
    assert text in observer.steps
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["gb_per_s"] == 4000.0
    assert found["date_utc"] == found["environment"]["date_utc"] > "2026"


@pytest.mark.parametrize("reply", [{"status": "error", "reason": "not stable"}, {"contents": limits(1100.0)}])
def test_a_limit_that_a_row_still_passes_is_not_believed(compare: Any, file: Path, reply: dict[str, Any]) -> None:
    asked: list[str] = []
    shapes = ("N=268435456", "N=536870912")
    rows = compare(answers(LEAST_US / 2, reply, asked), device=UNKNOWN, shapes=shapes)
    assert asked.count("peaks") == 1, "once in a run"
    for row in rows:
        assert (row.of_limit, row.suspect, row.failed) == (None, False, False)
        assert row.remarks.startswith("faster than the device's memory (measured), which is not used")


def test_a_worker_measures_the_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading("memory", "read", 10**9, 100.0, 99.0, 101.0)
    monkeypatch.setattr(peaks, "_streams", lambda *_: lambda: [reading])
    monkeypatch.setattr(peaks, "_products", lambda *_: ([], {}))
    session = Session(Device("cpu", name="a CPU"), lambda started: None)
    reply = session.handle(PeaksRequest("a CPU"))
    assert isinstance(reply, PeaksReply)
    assert json.loads(reply.contents)["gb_per_s"] == pytest.approx(10000.0)
    monkeypatch.setattr(measured_peaks, "STABLE", -1.0)
    refused = session.handle(PeaksRequest("a CPU"))
    assert isinstance(refused, Failed)
    assert "not stable" in refused.reason
