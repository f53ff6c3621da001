"""The host's processor, memory and caches."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

DEFAULT_CACHE_BYTES = 64 << 20
"""Taken for the last-level cache where the kernel does not tell its size; larger than most."""


def cpu_facts() -> dict[str, Any]:
    """Name, cores this process may use, memory in all and to be had."""
    total: int | None = None
    available: int | None = None
    try:
        import psutil

        total, available = psutil.virtual_memory().total, psutil.virtual_memory().available
    except ImportError:
        pass
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return {
        "name": cpu_name(),
        "cores": len(usable),
        "memory_total_bytes": total,
        "memory_available_bytes": available,
        "last_level_cache_bytes": cpu_cache_bytes(),
    }


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model, as /proc/cpuinfo has it; the machine's architecture elsewhere."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    fields = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon}
    return fields.get("model name") or fields.get("Model") or platform.processor() or platform.machine() or "CPU"


def cpu_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Size of the last-level cache."""
    sizes = []
    for entry in folder.glob("index*/size"):
        try:
            text = entry.read_text().strip()
            sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0))
        except (OSError, ValueError, IndexError):
            continue
    return max(sizes, default=DEFAULT_CACHE_BYTES)
