"""Devices and their state, on an NVML in Python."""

from __future__ import annotations

import json
import os

import pytest
from fakes.nvml import FakeNvml

from suite import hardware
from suite.core.errors import UsageError
from suite.hardware import cuda_driver, monitor
from suite.hardware.device import resolve


def test_devices(fake_nvml: FakeNvml) -> None:
    first, second = hardware.devices()
    assert first["name"] == "NVIDIA H200"
    assert first["compute_capability"] == [9, 0]
    assert (first["driver"], first["driver_cuda"]) == ("580.159.04", "13.1")
    assert (first["power_limit_w"], first["ecc"], first["processes"]) == (700.0, True, 0)
    assert second["memory_total_bytes"] is None
    json.dumps([first, second])
    assert hardware.memory_bytes("cuda", 0) == 140 << 30
    assert hardware.memory_bytes("cuda", 1) is None
    assert hardware.memory_bytes("cuda", 2) is None


def test_state(fake_nvml: FakeNvml) -> None:
    fake_nvml.pids = (os.getpid(), 1)
    state = hardware.state(hardware.nvml_handle(0))
    assert state == hardware.State(1980, 3201, 41, 123.456, 4, 1, 1980)
    assert hardware.state(hardware.nvml_handle(1)) == hardware.State(None, None, None, None, 0, 0)
    assert hardware.state(None) is None
    assert hardware.energy_mj(0) == 987_654
    assert hardware.energy_mj(1) is None


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("GPU-bbb", [1]), ("GPU-b,0", [1, 0]), ("", []), ("0,7,1", [0]),
     ("-1", [])],
)  # fmt: skip
def test_visible_devices(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[int]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert monitor.visible_handles() == expected


@pytest.mark.parametrize("visible", ["MIG-aaa", "MIG-GPU-aaa/1/0", "MIG-aaa,0"])
@pytest.mark.parametrize("asked", [None, "cuda", "cuda:0"])
def test_a_slice_of_a_gpu_is_refused_and_not_replaced_by_the_cpu(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str, asked: str | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(UsageError, match=rf"CUDA_VISIBLE_DEVICES={visible}: .*\(MIG\).* 2 GPUs here: .*--device cpu"):
        resolve(asked)
    assert resolve("cpu").type == "cpu"


def test_a_gpu_in_slices_has_no_peaks_of_the_whole(fake_nvml: FakeNvml) -> None:
    """A CUDA program gets one of its slices."""
    assert hardware.peaks(hardware.devices()[0]["name"]) is not None
    fake_nvml.mig = 1
    first = hardware.devices()[0]
    assert first["name"] == "NVIDIA H200 MIG"
    assert hardware.peaks(first["name"]) is None


def test_a_uuid_takes_precedence(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert hardware.nvml_handle(0) == 1
    assert hardware.nvml_handle(0, uuid="aaa") == hardware.nvml_handle(0, uuid="GPU-aaa") == 0
    assert hardware.nvml_handle(5) is None


@pytest.mark.parametrize(
    ("pids", "own", "others"), [([], 5, 0), ([5], 5, 0), ([5, 6, 7], 5, 2), ([900], 5, 0), ([900, 901], 5, 1)]
)
def test_other_processes(pids: list[int], own: int, others: int) -> None:
    assert monitor.other_processes(pids, {own}) == others


def test_clock_reasons() -> None:
    assert hardware.clock_reasons(0) == []
    assert hardware.clock_reasons(0x24) == ["power cap", "thermal slowdown by software"]
    assert hardware.clock_reasons(0x1000) == ["unknown (0x1000)"]
    assert hardware.clock_reasons(hardware.SLOWDOWNS) == [
        "hardware slowdown",
        "thermal slowdown by software",
        "thermal slowdown by hardware",
        "power brake",
    ]


def test_without_nvml_there_are_no_devices_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_load", lambda: (None, "no NVIDIA driver answers"))
    assert hardware.devices() == []
    assert hardware.nvml_handle(0) is None
    assert hardware.state(0) is None
    assert hardware.energy_mj(0) is None
    assert hardware.nvml_problem() == "no NVIDIA driver answers"


@pytest.mark.gpu
def test_the_gpu_of_this_machine() -> None:
    import torch

    properties = torch.cuda.get_device_properties(0)
    (attributes,) = [gpu["attributes"] for gpu in cuda_driver.devices() if gpu["index"] == 0]
    assert attributes["sm_count"] == properties.multi_processor_count
    assert attributes["l2_bytes"] == properties.L2_cache_size
    assert hardware.devices()[0]["name"] == properties.name
    handle = hardware.nvml_handle(0, uuid=str(properties.uuid))
    state = hardware.state(handle)
    assert state is not None
    assert state.clock_sm_mhz
    assert hardware.energy_mj(handle)
