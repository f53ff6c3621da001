"""Readings of a device, from which measured peaks are made."""

from __future__ import annotations

from typing import Any

from suite.hardware import measured_peaks
from suite.hardware.measured_peaks import Reading

UNKNOWN = "NVIDIA X900"
"""Not in the datasheets."""
READINGS = [
    Reading(
        "memory",
        "read, 8,192 MiB an array",
        8 << 30,
        2000.0,
        1990.0,
        2010.0,
        20,
        "cupti",
        1980.0,
        400.0,
        "",
        passes=2,
        spread=0.02,
    ),
    Reading("memory", "copy, 8,192 MiB an array", 16 << 30, 4200.0),
    Reading("fp32", "M=N=K=4096", 2 * 4096**3, 2677.0),
    Reading("bf16", "M=N=K=4096", 2 * 4096**3, 178.0),
    Reading("bf16", "M=N=K=8192", 2 * 8192**3, 1378.0, clock_reasons="power cap", clock_sm_mhz=1755.0),
    Reading("fp16", "M=N=K=512", 2 * 512**3, 1e6),
]


def contents(device: str = UNKNOWN) -> dict[str, Any]:
    return measured_peaks.document(device, READINGS, {"fp8": "RuntimeError: not here"}, {"date_utc": "2026-11-21"})
