"""Parses the output of Nsight Compute into calls."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suite.profiling import nsight
from suite.profiling.nsight import NsightError
from suite.timing import median

EMPTY = "empty"
"""Name of the fill of one element, which both sides time like an implementation."""
MARKER = "spin_kernel"
"""The kernel of torch.cuda._sleep, which precedes each call."""
MARKER_CYCLES = 2_000_000
"""Cycles of the marker: more than 1 ms, so that events time it to within 0.3%."""


@dataclass(frozen=True)
class Kernel:
    """One profiled kernel."""

    name: str
    us: float


def parse(text: str) -> list[Kernel]:
    """Parse the CSV that ncu prints into kernels, in the order in which they ran. Raises `NsightError`."""
    return [Kernel(each.name, each.us) for each in nsight.kernels(text)]


def calls(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Split the kernels into calls at their markers. Raises `NsightError` for a kernel before the first marker."""
    found: list[list[Kernel]] = []
    for kernel in kernels:
        if MARKER in kernel.name:
            found.append([kernel])
        elif found:
            found[-1].append(kernel)
        else:
            raise NsightError(f"{kernel.name} was profiled before the first marker")
    return found


def version(executable: str) -> str:
    """Return the name and version of ncu."""
    done = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Version (\S+)", done.stdout)
    return f"Nsight Compute {found.group(1)}" if found else "Nsight Compute"


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
