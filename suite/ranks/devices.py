"""The devices of the ranks, and the environment of their processes."""

from __future__ import annotations

import os

from suite import hardware
from suite.hardware.device import Device, resolve
from suite.hardware.environment import package_version
from suite.hardware.host import cores
from suite.hardware.threads import THREAD_VARIABLES

DEFAULT_RANKS, MAX_RANKS = 2, 16
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
"""NVLink multicast stays off: a fault there can take the host's switches down for all of its GPUs."""
ON_ONE_HOST = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""All ranks are on this host, whose name need not have an address."""
NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def device_of_ranks(device: Device, ranks: int) -> Device:
    """The device of the first rank: a GPU if the run has one and the host has one for each rank; else the CPU."""
    if device.type == "cuda" and len(hardware.devices()) >= ranks:
        return resolve("cuda:0")
    return resolve("cpu")


def environment(device: Device, ranks: int) -> dict[str, str]:
    """The environment of the processes: ranks on a CPU share its cores."""
    threads = {name: str(max(1, cores() // ranks)) for name in THREAD_VARIABLES} if device.type == "cpu" else {}
    return {**os.environ, **ON_ONE_HOST, **WITHOUT_MULTICAST, **threads}


def network(device: Device) -> str:
    """The library that connects the ranks, and its settings, for the column `versions`."""
    if device.type == "cpu":
        return "gloo"
    version = next(filter(None, map(package_version, NCCL)), "unknown")
    return f"nccl {version} ({' '.join(f'{name}={value}' for name, value in WITHOUT_MULTICAST.items())})"
