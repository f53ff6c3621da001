"""Runs for the tests of `report`: rows as `compare` makes them, with times from a formula instead of a clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diff.rows import H200, folder

from suite.report.load import Entry, Run, entries_of, load_runs
from suite.results.row import Row

PEAKS = {"gb_per_s": 4800.0, "tflops": {"fp32": 67.0, "bf16": 989.0}, "source": "https://example.com/datasheet"}
RECORD = {
    **H200,
    "date_utc": "2026-11-22T15:06:21Z",
    "command": "python -m suite compare --op all",
    "device": {"type": "cuda", "name": "NVIDIA H200", "driver": "580", "peaks": PEAKS, "power_limit_w": 700.0},
    "run": {"complete": True, "settings": {"code": {"digest": "0bad107093101b77"}}},
}
VENDORS = {"torch": "cuBLAS", "jax": "XLA"}
SPEEDS = {"triton": 0.96, "jax": 0.9, "cuda": 0.05, "cuda/tiled": 0.2, "cuda/wgmma": 1.1, "torch": 1.0}
"""Speed of each implementation relative to the best vendor's."""


def row(implementation: str = "triton", speed: float = 1.0, size: int = 1024, **values: Any) -> Row:
    """A timed row of a square matmul that takes 100 us at a speed of 1."""
    is_best = implementation in VENDORS and speed == 1
    us = 100.0 / speed * (size / 1024) ** 3
    numbers: dict[str, Any] = {
        "device_us": us,
        "device_us_low": us * 0.999,
        "device_us_high": us * 1.001,
        "vs_best": speed,
        "vs_best_low": speed * (1 if is_best else 0.998),
        "vs_best_high": speed * (1 if is_best else 1.002),
        "of_limit": speed * 0.7,
        "limit": "arithmetic (datasheet)",
        "tflops": 2 * size**3 / us / 1e6,
        "gb_per_s": 6 * size**2 / us / 1e3,
        "latency_us": us + 20,
        "dispatch_us": 15.0,
        "joules": us * 4e-4,
        "error_ratio": 0.5,
        "recorder": "cupti",
        "cache": "cold",
        "samples": 20,
        "device": "cuda:0",
        "vendor": VENDORS.get(implementation, ""),
    }
    case = f"M={size},N={size},K={size}"
    return Row(**{"operation": "matmul", "case": case, "dtype": "bfloat16", "precision": "ieee",
                  "implementation": implementation, **numbers, **values})  # fmt: skip


def failed(implementation: str, status: str, **values: Any) -> Row:
    """A row without a time."""
    return Row("matmul", "M=1024,N=1024,K=1024", "bfloat16", "ieee", implementation, status=status,
               device="cuda:0", **values)  # fmt: skip


def square(size: int = 1024, **values: Any) -> list[Row]:
    """The rows of one case."""
    return [row(name, speed, size, **values) for name, speed in SPEEDS.items()]


def entries(rows: list[Row]) -> list[Entry]:
    return entries_of(rows, "NVIDIA H200", "", {each.device: "NVIDIA H200" for each in rows})


def run_of(path: Path, rows: list[Row], record: dict[str, Any] = RECORD) -> Run:
    """Writes a folder with `rows` and loads its run."""
    return load_runs([folder(path, rows, record)])[0]


def many(count: int) -> list[Row]:
    """About `count` rows of four operations, each different."""
    dtypes, rows = ("float32", "float16", "bfloat16"), []
    for place in range(count // len(SPEEDS)):
        size = 64 * (1 + place // 12)
        names = {"operation": f"operation_{place % 4}", "dtype": dtypes[place // 4 % 3]}
        for name, speed in SPEEDS.items():
            rows.append(row(name, speed * (1 + place % 7 / 50), size, **names, versions="torch 2.11.0, triton 3.6.0"))
    return rows


SWEEP = [
    row(name, 1.0, 64, case=f"N={n}", operation="vector_add", device=device, latency_us=n / 9, program_us=n / 3)
    for n in (64, 128)
    for name, device in (("torch", "cuda:0"), ("cuda", "cuda:0"), ("numpy", "cpu"))
]
"""Sizes on a GPU and on its host."""
