"""Runs Nsight Compute: finds it, builds its command line, reads its table, and summarizes its counters of one call."""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.core.text import one_line
from suite.results.row import Bound

DURATION = "gpu__time_duration.sum"
SHARES = {
    "ncu_tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "ncu_dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "ncu_l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "ncu_issue": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "ncu_occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
"""Columns of a row, each with the percentage of Nsight Compute that it holds."""
STALLS = "regex:smsp__average_warps_issue_stalled.*_per_issue_active"
"""The counters of all reasons why warps wait. The device decides which ones exist."""
METRICS = (DURATION, *SHARES.values(), STALLS)
LIMITS = {
    "ncu_tensor": Bound.TENSOR,
    "ncu_dram": Bound.DRAM,
    "ncu_l2": Bound.L2,
    "ncu_issue": Bound.ISSUE,
}
"""Resources that can limit a kernel, by the column that says how busy they are. Among equally busy ones the first
counts."""
BUSY = 0.6
"""Latency limits a kernel if all units are less busy than this: the rule of Nsight Compute's own report."""
TIE_RATIO = 0.9
"""Units count as equally busy if their ratio is above this, because DRAM traffic keeps the L2 cache busy too."""

NCU_PATHS = ("/usr/local/cuda/bin/ncu", "/usr/local/cuda/nsight-compute*/ncu", "/opt/nvidia/nsight-compute/*/ncu")
INSTALL_HINT = "apt install cuda-nsight-compute-13-0, or see https://developer.nvidia.com/nsight-compute"
NO_PERMISSION = "ERR_NVGPUCTRPERM"
REFUSALS = (NO_PERMISSION, "LibraryNotLoaded", "Failed to initialize the profiler")
"""Messages of ncu if it cannot, or is not permitted to, read the device's counters."""
PERMISSION_HINT = (
    f"Nsight Compute may not read this GPU's counters ({NO_PERMISSION}): run as root, or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM); "
    "in a container also with --cap-add=SYS_ADMIN"
)

_TIMES = {"n": 1e-3, "u": 1.0, "m": 1e3, "": 1e6}
_UNITS = {f"{prefix}{unit}": us for prefix, us in _TIMES.items() for unit in ("s", "second", "seconds", "sec")}
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active(?:\.ratio)?")
_ISSUING = ("selected", "not_selected")
"""States of a warp that can issue. They are no stalls."""
_SEPARATORS = re.compile(r"[,'\s\u2019_]")
"""Separators of thousands in any locale that ncu may use."""


class NsightError(Exception):
    """Nsight Compute printed no table, or not the expected one. `refused`: it cannot profile any program here."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True)
class Kernel:
    """One profiled kernel, with the text and unit of each metric."""

    name: str
    values: Mapping[str, tuple[str, str]]

    @property
    def us(self) -> float:
        """Its time in microseconds."""
        text, unit = self.values.get(DURATION, ("", ""))
        number = _number(text)
        if number is None or unit not in _UNITS:
            raise NsightError(f"ncu gave {DURATION} as {text!r} {unit!r}")
        return number * _UNITS[unit]

    def share(self, metric: str) -> float | None:
        """A percentage as a share from 0 to 1; None if the device has no such metric."""
        number = _number(self.values.get(metric, ("", ""))[0])
        return None if number is None else number / 100

    def stalls(self) -> dict[str, float]:
        """The share of each reason in the total time that warps wait."""
        found: dict[str, float] = {}
        for metric, (text, _) in self.values.items():
            match, number = _STALL.fullmatch(metric), _number(text)
            if match and number is not None and match[1] not in _ISSUING:
                found[match[1]] = number
        total = sum(found.values())
        return {name: number / total for name, number in found.items()} if total > 0 else {}


def ncu() -> str | None:
    """The path of Nsight Compute's command-line program, or None."""
    if found := shutil.which("ncu"):
        return found
    candidates = [str(path) for place in NCU_PATHS for path in sorted(Path("/").glob(place.lstrip("/")))]
    return next((path for path in reversed(candidates) if os.access(path, os.X_OK)), None)


def command(
    executable: str, log: Path, metrics: Sequence[str] = METRICS, *, cold: bool = False, whole: bool = False
) -> list[str]:
    """The command line that profiles another command, between cudaProfilerStart and -Stop, and writes a table to `log`.

    `cold` flushes the caches before each kernel; `whole` profiles all kernels of the command. The clocks are not
    changed.
    """
    return [
        executable,
        *("--target-processes", "application-only"),
        *("--profile-from-start", "on" if whole else "off"),
        *("--clock-control", "none"),
        *("--cache-control", "all" if cold else "none"),
        *("--metrics", ",".join(metrics)),
        *("--print-units", "base"),
        *("--print-kernel-base", "mangled"),
        *("--csv", "--log-file", str(log)),
    ]


def refuse(text: str) -> None:
    """Raise `NsightError` if ncu says in `text` that it cannot profile on this machine."""
    if any(word in text for word in REFUSALS):
        message = (
            PERMISSION_HINT if NO_PERMISSION in text else _last_message("ncu cannot profile here", text.splitlines())
        )
        raise NsightError(message, refused=True)


def _last_message(what: str, lines: Sequence[str]) -> str:
    """The last message that ncu printed. Its own lines begin with ==."""
    own = [line for line in lines if line.startswith("==")] or lines
    return f"{what}: {one_line(' '.join(own[-6:]))[:600]}"


def kernels(text: str) -> list[Kernel]:
    """The kernels in the CSV that ncu prints, long or wide, in the order in which they ran. Raises `NsightError`."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        refuse(text)
        raise NsightError(_last_message("ncu printed no table", lines))
    rows = list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    if not rows or "Metric Name" not in rows[0]:  # the wide form: a row of units, then a row for each kernel
        units, *rows = rows or [{}]
        return [
            Kernel(row["Kernel Name"], {name: (row[name], units[name]) for name in row if "__" in (name or "")})
            for row in rows
        ]
    found: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {}
    for row in rows:
        values = found.setdefault(row["ID"], (row["Kernel Name"], {}))[1]
        values[row["Metric Name"]] = row["Metric Value"], row["Metric Unit"]
    return [Kernel(*each) for each in found.values()]


def columns(found: Sequence[Kernel]) -> dict[str, Any]:
    """The columns of a row from the kernels of one call: means weighted by the kernels' times.

    Raises `NsightError` if there is no kernel, or one has no time.
    """
    if not found:
        raise NsightError("ncu saw no kernel")
    times = [kernel.us for kernel in found]
    shares = {name: _mean(times, [kernel.share(metric) for kernel in found]) for name, metric in SHARES.items()}
    waiting = [kernel.stalls() for kernel in found]
    names = dict.fromkeys(name for each in waiting for name in each)
    stalls = {name: _mean(times, [each.get(name, 0.0) for each in waiting]) or 0.0 for name in names}
    busiest = max(shares[name] or 0.0 for name in LIMITS)
    first = next(bound for name, bound in LIMITS.items() if (shares[name] or 0.0) >= TIE_RATIO * busiest)
    return {
        **shares,
        "ncu_stall": max(stalls, key=lambda name: stalls[name], default=""),
        "bound_by": first if busiest >= BUSY else Bound.LATENCY,
    }


def _mean(times: Sequence[float], values: Sequence[float | None]) -> float | None:
    """The mean of the known values, weighted by the kernels' times."""
    known = [(us, value) for us, value in zip(times, values, strict=True) if value is not None]
    total = sum(us for us, _ in known)
    return round(sum(us * value for us, value in known) / total, 4) if total > 0 else None


def _number(text: str | None) -> float | None:
    """A text such as `1,280.5` as a number; None for `n/a`, NaN and an empty text."""
    try:
        number = float(_SEPARATORS.sub("", text or ""))
    except ValueError:
        return None
    return None if number != number else number
