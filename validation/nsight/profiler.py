"""Nsight Compute: where it is, its command line, and the kernels in its output."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.timing import median

METRIC = "gpu__time_duration.sum"
EMPTY = "empty"
"""Name of the fill of one element, which both sides time as if it were an implementation."""
MARKER = "spin_kernel"
"""The kernel of torch.cuda._sleep, which precedes each call."""
MARKER_CYCLES = 2_000_000
"""More than 1 ms, so that events time it to within 0.3%."""
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
PLACES = ("/usr/local/cuda/bin/ncu", "/usr/local/cuda/nsight-compute*/ncu", "/opt/nvidia/nsight-compute/*/ncu")
REFUSALS = ("ERR_NVGPUCTRPERM", "LibraryNotLoaded", "Failed to initialize the profiler")
"""Messages of ncu if it cannot, or is not permitted to, read the device's counters."""


class NsightError(Exception):
    """Nsight Compute printed no table. `refused`: this machine does not permit profiling of any program."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True)
class Kernel:
    """One profiled kernel."""

    name: str
    us: float


def parse(text: str) -> list[Kernel]:
    """The kernels in the CSV that ncu prints, long or wide, in the order in which they ran. Raises `NsightError`."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        said = [line for line in lines if line.startswith("==")] or lines
        raise NsightError(
            "ncu printed no table: " + " ".join(said[-6:])[:600], refused=any(word in text for word in REFUSALS)
        )
    body = [line for line in lines[start:] if line.startswith('"')]
    rows = list(csv.DictReader(body))
    if rows and METRIC in rows[0]:  # wide form: one row for each kernel, after a row of units
        unit = rows[0][METRIC]
        return [Kernel(row["Kernel Name"], _us(row[METRIC], unit)) for row in rows[1:]]
    return [
        Kernel(row["Kernel Name"], _us(row["Metric Value"], row["Metric Unit"]))
        for row in rows
        if row["Metric Name"] == METRIC
    ]


def _us(value: str, unit: str) -> float:
    try:
        return float(value.replace(",", "")) * UNITS[unit]
    except (ValueError, KeyError) as error:
        raise NsightError(f"ncu gave {METRIC} as {value!r} {unit!r}") from error


def calls(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """The kernels split into calls, each beginning with a marker. Raises `NsightError` for one before the first."""
    found: list[list[Kernel]] = []
    for kernel in kernels:
        if MARKER in kernel.name:
            found.append([kernel])
        elif found:
            found[-1].append(kernel)
        else:
            raise NsightError(f"{kernel.name} was profiled before the first marker")
    return found


def ncu() -> str | None:
    """The path of Nsight Compute's command-line program, or None."""
    found = shutil.which("ncu")
    if found:
        return found
    candidates = [str(path) for place in PLACES for path in sorted(Path("/").glob(place.lstrip("/")))]
    return next((path for path in reversed(candidates) if os.access(path, os.X_OK)), None)


def version(executable: str) -> str:
    """Its name and version."""
    done = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Version (\S+)", done.stdout)
    return f"Nsight Compute {found.group(1)}" if found else "Nsight Compute"


def command(executable: str, log: Path) -> list[str]:
    """The command line that profiles another one and writes the table to `log`."""
    return [
        executable,
        *("--target-processes", "application-only"),
        *("--profile-from-start", "off"),
        *("--clock-control", "none"),
        *("--cache-control", "none"),
        *("--metrics", METRIC),
        *("--print-units", "base"),
        *("--print-kernel-base", "mangled"),
        *("--csv", "--log-file", str(log)),
    ]


def add_profile(entries: Sequence[dict[str, Any]], plan: Sequence[str], table: str) -> None:
    """Add median, clock, kernel names and sample count to each entry.

    `plan` has the key of each call in order, as JSON; `table` is the output of ncu. Raises `NsightError` if the numbers
    of calls differ.
    """
    if not plan:
        return
    found = calls(parse(table))
    if len(found) != len(plan):
        raise NsightError(f"ncu saw {len(found)} calls of {len(plan)}: {table.splitlines()[-3:]}")
    by_key: dict[tuple[str, ...], list[list[Kernel]]] = {}
    for text, kernels in zip(plan, found, strict=True):
        by_key.setdefault(tuple(json.loads(text)), []).append(kernels)
    for entry in entries:
        runs = by_key.get(tuple(entry["key"]))
        if runs:
            entry["median"] = median([sum(kernel.us for kernel in run[1:]) for run in runs])
            entry["mhz"] = median([MARKER_CYCLES / run[0].us for run in runs])
            entry["names"] = [kernel.name for kernel in runs[-1][1:]]
            entry["samples"] = len(runs)
