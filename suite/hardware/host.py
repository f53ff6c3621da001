"""Reads the host's processor, memory and caches."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from suite.core.errors import UsageError

DEFAULT_CACHE_BYTES = 64 << 20
"""Assumed size of the last-level cache if the system does not report it. Most caches are smaller."""
CACHE_VARIABLE = "SUITE_CACHE_BYTES"
"""Environment variable with the size of the last-level cache. A virtual machine reports the whole cache of its host."""


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_facts() -> dict[str, Any]:
    """Name, cores, memory and last-level cache in bytes (None where unknown)."""
    total: int | None = None
    available: int | None = None
    try:
        import psutil

        total, available = psutil.virtual_memory().total, psutil.virtual_memory().available
    except ImportError:
        pass
    return {
        "name": cpu_name(),
        "cores": cores(),
        "memory_total_bytes": total,
        "memory_available_bytes": available,
        "last_level_cache_bytes": cpu_cache_bytes(),
    }


def free_host_bytes(processes: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory in bytes that this process can still allocate, within its control groups; None if unknown."""
    found = [cpu_facts()["memory_available_bytes"], *_free_of_groups(processes, groups)]
    return min((int(free) for free in found if free is not None), default=None)


def _free_of_groups(processes: Path, groups: Path) -> Iterator[int]:
    """Free bytes in each control group (version 1 or 2) of this process that has a memory limit."""
    try:
        entries = [line.split(":", 2) for line in processes.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, name in (entry for entry in entries if len(entry) == 3):
        if controllers == "":
            root, limit, usage = groups, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit, usage = groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = root / name.lstrip("/")
        for folder in (group, *group.parents):
            try:
                allowed, used = int((folder / limit).read_text()), int((folder / usage).read_text())
                cached = re.search(r"^inactive_file (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
            except (OSError, ValueError):  # the file is missing or contains `max`: no limit
                continue
            yield max(0, allowed - used + (int(cached[1]) if cached else 0))


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model from /proc/cpuinfo; the machine's architecture if that is missing."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    fields = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon}
    return fields.get("model name") or fields.get("Model") or platform.processor() or platform.machine() or "CPU"


@cache
def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The instruction sets that the system reports; empty if it reports none."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return frozenset()
    return frozenset(found[1].split()) if found else frozenset()


def cpu_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Size of the last-level cache in bytes: from the environment variable, or as the system reports it."""
    given = os.environ.get(CACHE_VARIABLE)
    if given is not None:
        if not given.isdecimal() or not int(given):
            raise UsageError(f"{CACHE_VARIABLE}={given}: must be a number of bytes")
        return int(given)
    sizes = []
    for entry in folder.glob("index*/size"):
        try:
            text = entry.read_text().strip()
            sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0))
        except (OSError, ValueError, IndexError):
            continue
    return max(sizes, default=DEFAULT_CACHE_BYTES)
