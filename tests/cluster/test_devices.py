"""The devices that share the cases of a run."""

from __future__ import annotations

import pytest

from suite import hardware
from suite.cluster import devices
from suite.core.errors import UsageError
from suite.hardware import host
from suite.hardware.device import Device

CPU, H100 = Device("cpu", name="CPU"), Device("cuda", 0, "H100", (9, 0))


@pytest.fixture
def three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with an H100, a T4 and an H100."""
    names = ["H100", "T4", "H100"]
    monkeypatch.setattr(hardware, "devices", lambda: [{"index": i, "name": name} for i, name in enumerate(names)])
    monkeypatch.setattr(hardware, "uuid", lambda index: f"GPU-{index}")


@pytest.mark.usefixtures("three_gpus")
def test_gpus_of_another_model_take_no_cases_and_each_process_sees_one_by_its_uuid() -> None:
    assert devices.device_count("all", H100) == 2
    assert devices.device_count(None, H100) == 1
    seen = devices.environments(H100, 2)
    assert [each["CUDA_VISIBLE_DEVICES"] for each in seen] == ["GPU-0", "GPU-2"]
    assert {each["CUDA_DEVICE_ORDER"] for each in seen} == {"PCI_BUS_ID"}


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize("text", ["3", "0", "-1", "many", ""])
def test_more_gpus_than_there_are_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=rf"--gpus {text}: must be a number from 1, or all; there are 2 of H100"):
        devices.device_count(text, H100)


def test_processes_on_a_cpu_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cores", lambda: 8)
    assert devices.device_count("all", CPU) == 8
    assert [each["OMP_NUM_THREADS"] for each in devices.environments(CPU, 3)] == ["2"] * 3


@pytest.mark.usefixtures("three_gpus")
def test_a_host_of_a_cluster_has_a_worker_for_each_gpu_of_any_model(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = {"cuda:0": H100, "cuda:1": Device("cuda", 1, "T4", (7, 5))}
    monkeypatch.setattr(devices, "resolve", gpus.__getitem__)
    slots = [(model, each["CUDA_VISIBLE_DEVICES"]) for model, each in devices.on_this_host(None)]
    assert slots == [("H100", "GPU-0"), ("H100", "GPU-2"), ("T4", "GPU-1")]
    assert len(devices.on_this_host(2)) == 2


def test_a_host_without_gpus_has_workers_that_see_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "devices", list)
    slots = devices.on_this_host(2)
    assert [each["CUDA_VISIBLE_DEVICES"] for _, each in slots] == ["", ""]
    assert len(devices.on_this_host(None)) == 1
