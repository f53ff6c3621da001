"""NVML in Python."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from suite.hardware import monitor


class FakeNvmlError(Exception):
    pass


class FakeNvml:
    """Two H200s; the second refuses everything but its name."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    pids: tuple[int, ...] = ()
    mig = 0

    def __getattr__(self, name: str) -> object:
        answers = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: {"GPU-aaa": 0, "GPU-bbb": 1}[uuid],
            "nvmlDeviceGetUUID": lambda handle: ("GPU-aaa", b"GPU-bbb")[handle],
            "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
            "nvmlSystemGetDriverVersion": lambda: b"580.159.04",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13010,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=143 << 30, free=140 << 30),
            "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
            "nvmlDeviceGetMigMode": lambda handle: [self.mig, self.mig],
            "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetMaxClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetTemperature": lambda handle, sensor: 41,
            "nvmlDeviceGetPowerUsage": lambda handle: 123_456,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetEccMode": lambda handle: [1, 1],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 4,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 987_654,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=pid) for pid in self.pids],
        }

        def answer(*arguments: object) -> object:
            if arguments and arguments[0] == 1 and name not in ("nvmlDeviceGetUUID", "nvmlDeviceGetHandleByIndex"):
                raise FakeNvmlError("not supported")
            return answers[name](*arguments)

        return answer


def install(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Replace NVML by a `FakeNvml` for one test."""
    fake = FakeNvml()
    monkeypatch.setattr(monitor, "_load", lambda: (fake, ""))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake
