"""The devices of this host that share the cases of a run, and the environments of their processes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from suite import hardware
from suite.core.errors import UsageError
from suite.hardware import host
from suite.hardware.device import Device, resolve
from suite.hardware.threads import THREAD_VARIABLES

MAX_DEVICES = 1024


def alike(device: Device) -> list[int]:
    """The indices of the visible GPUs of the same model as `device`."""
    return [facts["index"] for facts in hardware.devices() if facts["name"] == device.name]


def device_count(text: str | None, device: Device) -> int:
    """The number of devices that `--gpus text` names: processes on a CPU. Raises `UsageError` if there are fewer."""
    if text is None:
        return 1
    most = len(alike(device)) if device.type == "cuda" else MAX_DEVICES
    if text == "all":
        return most if device.type == "cuda" else host.cores()
    if not text.isdecimal() or not 1 <= int(text) <= most:
        there = f"there are {most} of {device.name}" if device.type == "cuda" else f"at most {most} processes"
        raise UsageError(f"--gpus {text}: must be a number from 1, or all; {there}")
    return int(text)


def environments(device: Device, devices: int) -> Sequence[dict[str, str]]:
    """The environment of the process of each device. Processes on a CPU share its cores."""
    if device.type == "cpu":
        threads = {name: str(max(1, host.cores() // devices)) for name in THREAD_VARIABLES}
        return [{**os.environ, **threads}] * devices
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    uuids = [hardware.uuid(index) for index in alike(device)[:devices]]
    return [{**os.environ, **order, "CUDA_VISIBLE_DEVICES": uuid} for uuid in uuids]


def on_this_host(most: int | None) -> list[tuple[str, dict[str, str]]]:
    """The model of the device, and the environment of a process, for each visible GPU: at most `most`; None means all.

    Without a GPU, for `most` processes on the CPU; None means one.
    """
    gpus = hardware.devices()
    if not gpus:
        cpu, blind = resolve("cpu"), {"CUDA_VISIBLE_DEVICES": ""}
        return [(cpu.name, {**each, **blind}) for each in environments(cpu, most or 1)]
    first = {facts["name"]: facts["index"] for facts in reversed(gpus)}
    models = [resolve(f"cuda:{index}") for index in sorted(first.values())]
    return [(model.name, each) for model in models for each in environments(model, len(alike(model)))][:most]
