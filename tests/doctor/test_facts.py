"""The facts of `doctor` about devices, tools and packages."""

from __future__ import annotations

import ctypes
import json
import os

import pytest
from fakes.driver import FakeDriver
from fakes.nvml import FakeNvml
from rich.console import Console

from suite.doctor import facts
from suite.hardware import cuda_driver, environment, monitor


def printed(**options: bool) -> str:
    console = Console(record=True, width=160, file=open(os.devnull, "w"))  # noqa: SIM115
    facts.show(console, **options)
    return console.export_text()


def test_doctor_prints_and_is_json() -> None:
    text = printed()
    assert "Packages" in text
    assert "torch" in text
    sections = json.loads(printed(as_json=True))
    assert [section["title"] for section in sections][-3:] == ["Tools", "Packages", "What runs here"]


def test_doctor_with_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(environment, "package_version", lambda name: None)
    monkeypatch.setattr(cuda_driver, "problem", lambda: "libcuda cannot be loaded")
    monkeypatch.setattr(monitor, "_load", lambda: (None, "nvidia-ml-py is not installed"))
    text = printed()
    assert "pip install torch" in text
    assert "apt-get install g++" in text
    assert "install NVIDIA's driver" in text


def test_doctor_on_a_gpu(monkeypatch: pytest.MonkeyPatch, fake_nvml: FakeNvml) -> None:
    from suite.timing import recorder_cupti

    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver())
    monkeypatch.setattr(recorder_cupti, "unavailable_reason", lambda: "CUPTI is taken by Nsight: run without it")
    text = printed()
    assert "GPU 0: NVIDIA H200" in text
    assert "132 at up to 1980 MHz" in text
    assert "4917 GB/s in theory" in text
    assert "227 KiB if asked for" in text
    assert "clusters no" in text
    assert "4800 GB/s" in text
    assert "clocks held by: power cap" in text
    assert "CUPTI is taken by Nsight" in text


def test_a_driver_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(init=100))
    assert cuda_driver.problem() == "cuInit returned error 100"
    assert cuda_driver.devices() == []
    assert "cuInit returned error 100  ->  check nvidia-smi" in printed()
