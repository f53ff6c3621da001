"""Reads and writes the measured peaks of a device: the file `limits.json` of `python -m suite doctor --measure`.

A measured peak (a "ceiling" in the file) is the rate of the fastest of several readings, which has to repeat. It is no
upper bound, because another kernel may be faster. It is therefore used only if the datasheet has no figure, and a row
that is faster has it measured again (`runner/ceilings.py`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite.core import package
from suite.core.errors import ResultsError
from suite.core.files import read_text, write_atomically
from suite.hardware.datasheet import Peaks, peaks

FILE = "limits.json"
MEMORY = "memory"
COMMAND = f"{package.command()} doctor --measure"
STABLE = 0.05
"""Largest relative difference of the two fastest passes, and half width of the interval, of a peak that is kept."""
HOW = f"the fastest of several passes, kept if the second fastest and its 95% interval are within {100 * STABLE:g}%"


@dataclass(frozen=True)
class Reading:
    """The time of one call of known work. `work` is in bytes if `ceiling` is `memory`, else in flops."""

    ceiling: str
    """`memory`, or a key of `Peaks.tflops`."""
    name: str
    work: int
    device_us: float
    device_us_low: float | None = None
    device_us_high: float | None = None
    samples: int = 0
    recorder: str = ""
    clock_sm_mhz: float | None = None
    power_w: float | None = None
    clock_reasons: str = ""
    passes: int = 1
    """Number of passes. The times are those of the fastest."""
    spread: float | None = None
    """Rate of the fastest pass divided by that of the second fastest, minus 1; None for a single pass."""

    @property
    def half_width(self) -> float:
        """Half the width of the 95% interval, relative to the time; infinity if there is no interval."""
        if self.device_us_low is None or self.device_us_high is None:
            return math.inf
        return (self.device_us_high - self.device_us_low) / 2 / self.device_us

    @property
    def is_stable(self) -> bool:
        """True if a second pass gave the same rate, and the samples agree."""
        return self.spread is not None and max(self.spread, self.half_width) <= STABLE

    @property
    def spread_text(self) -> str:
        """The differences in words: `passes differ by 48%, 95% interval +-12%`."""
        passes = "" if self.spread is None else f"passes differ by {100 * self.spread:.2g}%, "
        return f"{passes}95% interval +-{100 * self.half_width:.2g}%"

    @property
    def rate(self) -> float:
        """The rate in 10^9 bytes/s (memory) or 10^12 flops/s."""
        return self.work / self.device_us / (1e3 if self.ceiling == MEMORY else 1e6)


def fastest(readings: Sequence[Reading], ceiling: str) -> Reading | None:
    """The reading of `ceiling` with the highest rate, or None."""
    return max((r for r in readings if r.ceiling == ceiling), key=lambda r: r.rate, default=None)


def document(
    device: str, readings: Sequence[Reading], not_measured: Mapping[str, str], environment: Mapping[str, Any]
) -> dict[str, Any]:
    """The contents of the file: the ceilings, then all readings. Raises `ValueError` without a reading of memory."""
    memory = fastest(readings, MEMORY)
    if memory is None:
        raise ValueError("document: no reading of the memory among the readings")
    arithmetics = dict.fromkeys(r.ceiling for r in readings if r.ceiling != MEMORY)
    rates = {name: found.rate for name in arithmetics if (found := fastest(readings, name)) is not None}
    # A product in float32 or a narrower type can also be computed in float32, and a float32 product in float64.
    wider = {name: ("fp64",) if name in ("fp64", "fp32") else ("fp64", "fp32") for name in rates}
    rates = {name: max(rate, *(rates.get(each, 0.0) for each in wider[name])) for name, rate in rates.items()}
    return {
        "device": device,
        "gb_per_s": memory.rate,
        "tflops": rates,
        "date_utc": environment.get("date_utc", ""),
        "how": HOW,
        "spread": {name: found.spread for name in (MEMORY, *rates) if (found := fastest(readings, name)) is not None},
        "readings": [{**asdict(r), "gb_per_s" if r.ceiling == MEMORY else "tflops": r.rate} for r in readings],
        "not_measured": dict(not_measured),
        "environment": dict(environment),
    }


def write(path: Path, contents: Mapping[str, Any]) -> None:
    """Write `document(...)` to `path`. Raises `ResultsError`."""
    write_atomically(path, json.dumps(contents, indent=2, allow_nan=False) + "\n")


def is_ours(contents: bytes) -> bool:
    """True for the contents of a file that `write` made."""
    try:
        found = json.loads(contents)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {"device", "gb_per_s", "tflops"} <= found.keys()


def read(path: Path, device: str) -> Peaks:
    """The ceilings in a file, as `Peaks` with the file as source.

    Raises `ResultsError` for a file that is unreadable, damaged or of another device.
    """
    try:
        found = json.loads(read_text(path))
        name, bandwidth, rates = found["device"], found["gb_per_s"], found["tflops"]
        if not (_is_rate(bandwidth) and isinstance(rates, dict) and all(map(_is_rate, rates.values()))):
            raise ValueError("gb_per_s and tflops must be positive numbers")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ResultsError(
            f"{path}: not a readable file of measured limits ({why}): remove it, or {COMMAND}"
        ) from error
    if name != device:
        raise ResultsError(f"{path}: limits of {name!r}, and this is {device!r}: {COMMAND}")
    return peaks_of(found, str(path))


def peaks_of(contents: Mapping[str, Any], source: str) -> Peaks:
    """The ceilings in the contents of a file."""
    device, rates = contents["device"], {name: float(rate) for name, rate in contents["tflops"].items()}
    return Peaks(device, re.escape(device), float(contents["gb_per_s"]), rates, source)


def find(folder: Path, device: str) -> Peaks | None:
    """The ceilings in a results folder; None if it has no such file. Raises `ResultsError` as `read` does."""
    path = folder / FILE
    return read(path, device) if path.exists() else None


def limit(
    name: str,
    bytes: int,
    flops: int,
    dtype: str,
    precision: str | None = None,
    measured: Peaks | None = None,
) -> tuple[float, str] | None:
    """The shortest possible time in us for `bytes` of traffic and `flops` on the device `name`, and its limit.

    The limit is `memory (datasheet)`, `arithmetic (measured)`, ... The datasheet comes first, then the measured peaks.
    None if neither has the figures.
    """
    for found, source in ((peaks(name), "datasheet"), (measured, "measured")):
        bound = found.limit_us(bytes, flops, dtype, precision) if found is not None else None
        if bound is not None:
            return bound[0], f"{bound[1]} ({source})"
    return None


def limit_at_clock(
    name: str, bytes: int, flops: int, dtype: str, precision: str | None, clock_mhz: float
) -> float | None:
    """The shortest possible time in us as by the datasheet, but with arithmetic at `clock_mhz`; None if unknown."""
    found = peaks(name)
    bound = found.limit_us(bytes, flops, dtype, precision, clock_mhz) if found is not None else None
    return bound[0] if bound is not None else None


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
