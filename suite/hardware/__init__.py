"""The device: what it is, what it could do at best, what state it is in. No framework, no CUDA context."""

from suite.hardware.datasheet import Peaks, device_slug, peaks
from suite.hardware.host import cpu_cache_bytes, cpu_facts, free_host_bytes
from suite.hardware.measured import limit
from suite.hardware.monitor import (
    IDLE,
    SLOWDOWNS,
    State,
    clock_reasons,
    devices,
    energy_mj,
    nvml,
    nvml_handle,
    state,
    why_no_nvml,
)
from suite.hardware.record import environment

__all__ = [
    "IDLE",
    "SLOWDOWNS",
    "Peaks",
    "State",
    "clock_reasons",
    "cpu_cache_bytes",
    "cpu_facts",
    "device_slug",
    "devices",
    "energy_mj",
    "environment",
    "free_host_bytes",
    "limit",
    "memory_bytes",
    "nvml",
    "nvml_handle",
    "peaks",
    "state",
    "why_no_nvml",
]


def memory_bytes(device_type: str, index: int = 0) -> int | None:
    """Memory free for a new problem on `cpu` or on the GPU `cuda` `index`; None if it cannot be known."""
    if device_type == "cpu":
        available = cpu_facts()["memory_available_bytes"]
        return int(available) if available is not None else None
    found = [device for device in devices() if device["index"] == index]
    return int(found[0]["memory_free_bytes"]) if found and found[0]["memory_free_bytes"] is not None else None
