"""Peak bandwidth and dense peak rates of devices, as their vendors' datasheets state them.

Datasheets state tensor core rates with structured sparsity; the dense rates here are half of those. A device that is
not listed has no peaks: the peaks of a similar card would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Peaks:
    """Peaks of one product: bandwidth in 10^9 bytes/s, rates in 10^12 flops/s for each arithmetic."""

    product: str
    pattern: str
    """Regular expression that matches the whole name that NVML gives the product."""
    gb_per_s: float
    tflops: dict[str, float]
    """Rates by arithmetic: fp32 without tensor cores; tf32, fp16, bf16 and fp8 with them, accumulating in float32;
    fp64 with them where the device has such."""
    source: str
    flops_per_cycle: Mapping[str, int] = field(default_factory=dict)
    """Flops of the whole device in one cycle of the SM clock, by arithmetic. Their product with the clock that the
    datasheet assumes is its rate."""
    link_gb_per_s: float | None = None
    """NVLink's rate in each direction; None if there is no link or no figure."""

    def rate(self, dtype: str, precision: str | None = None, clock_mhz: float | None = None) -> float | None:
        """Peak flops/s of matrix products of `dtype` in `precision`, at `clock_mhz` if it is given, else as cited.

        None if there is no figure for that arithmetic.
        """
        key = _arithmetic(dtype, precision)
        if clock_mhz is not None:
            return self.flops_per_cycle[key] * clock_mhz * 1e6 if key in self.flops_per_cycle else None
        return self.tflops[key] * 1e12 if key in self.tflops else None

    def limit_us(
        self, bytes: int, flops: int, dtype: str, precision: str | None = None, clock_mhz: float | None = None
    ) -> tuple[float, str] | None:
        """The shortest possible time in us for `bytes` of traffic and `flops`, and its limit: `memory` or `arithmetic`.

        With `clock_mhz`, arithmetic has that SM clock; memory keeps its own. None if there are flops but no rate for
        their arithmetic.
        """
        rate = self.rate(dtype, precision, clock_mhz)
        if rate is None and flops:
            return None
        memory = bytes / (self.gb_per_s * 1e9) * 1e6
        arithmetic = flops / rate * 1e6 if rate else 0.0
        return (memory, "memory") if memory >= arithmetic else (arithmetic, "arithmetic")


def _arithmetic(dtype: str, precision: str | None) -> str:
    dtype = dtype.removeprefix("torch.")
    if dtype == "float32":
        return "tf32" if precision == "tf32" else "fp32"
    if dtype.startswith("float8"):
        return "fp8"
    return {"float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}.get(dtype, dtype)


_H100 = "https://www.nvidia.com/en-us/data-center/h100/"
_H100_PCIE = "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_A100 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_L4 = "https://www.nvidia.com/en-us/data-center/l4/"
_L40S = "https://www.nvidia.com/en-us/data-center/l40s/"
_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_B200 = "https://resources.nvidia.com/en-us-blackwell-architecture/datasheet"

_HOPPER_SXM = {"fp64": 67.0, "fp32": 67.0, "tf32": 494.5, "fp16": 989.0, "bf16": 989.0, "fp8": 1979.0}
_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}


def _per_cycle(multiprocessors: int, fp32: int, tf32: int, fp16: int, fp8: int = 0, fp64: int = 0) -> dict[str, int]:
    """Flops per cycle of a device, from those of one multiprocessor: fp32 without tensor cores, the others with them;
    0 if it has no tensor cores for a type.

    Sources: NVIDIA's architecture white papers of A100, Ada and H100 (multiply-adds per SM and clock, times two).
    """
    rates = {"fp64": fp64, "fp32": fp32, "tf32": tf32, "fp16": fp16, "bf16": fp16, "fp8": fp8}
    return {name: multiprocessors * rate for name, rate in rates.items() if rate}


_SMS_HOPPER = 256, 2048, 4096, 8192, 256
_A100_CYCLE = _per_cycle(108, 128, 1024, 2048, fp64=128)
PEAKS = (
    Peaks("H200 SXM", r"NVIDIA H200", 4800.0, _HOPPER_SXM, _H200, _per_cycle(132, *_SMS_HOPPER), 450.0),
    Peaks("H100 SXM", r"NVIDIA H100 80GB HBM3", 3350.0, _HOPPER_SXM, _H100, _per_cycle(132, *_SMS_HOPPER), 450.0),
    Peaks(
        "H100 PCIe",
        r"NVIDIA H100 PCIe",
        2000.0,
        {"fp64": 51.0, "fp32": 51.0, "tf32": 378.0, "fp16": 756.5, "bf16": 756.5, "fp8": 1513.0},
        _H100_PCIE,
        _per_cycle(114, *_SMS_HOPPER),
    ),
    Peaks("A100 40GB SXM", r"(NVIDIA )?A100-SXM4-40GB", 1555.0, _AMPERE, _A100, _A100_CYCLE),
    Peaks("A100 80GB SXM", r"(NVIDIA )?A100-SXM4-80GB", 2039.0, _AMPERE, _A100, _A100_CYCLE),
    Peaks("A100 40GB PCIe", r"(NVIDIA )?A100-PCIE-40GB", 1555.0, _AMPERE, _A100, _A100_CYCLE),
    Peaks("A100 80GB PCIe", r"(NVIDIA )?A100 80GB PCIe", 1935.0, _AMPERE, _A100, _A100_CYCLE),
    Peaks(
        "L4",
        r"NVIDIA L4",
        300.0,
        {"fp32": 30.3, "tf32": 60.0, "fp16": 121.0, "bf16": 121.0, "fp8": 242.5},
        _L4,
        _per_cycle(58, 256, 512, 1024, 2048),
    ),
    Peaks(
        "L40S",
        r"NVIDIA L40S",
        864.0,
        {"fp32": 91.6, "tf32": 183.0, "fp16": 362.05, "bf16": 362.05, "fp8": 733.0},
        _L40S,
        _per_cycle(142, 256, 512, 1024, 2048),
    ),
    Peaks(
        "GeForce RTX 4090",
        r"NVIDIA GeForce RTX 4090",
        1008.0,
        {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3},
        _ADA,
        _per_cycle(128, 256, 256, 512, 1024),
    ),
    Peaks(
        "B200 (HGX)",
        r"NVIDIA B200",
        7700.0,
        {"fp32": 75.0, "tf32": 1100.0, "fp16": 2250.0, "bf16": 2250.0, "fp8": 4500.0},
        _B200,
    ),
)


def peaks(name: str) -> Peaks | None:
    """The datasheet peaks of the device that NVML calls `name`, or None."""
    return next((entry for entry in PEAKS if re.fullmatch(entry.pattern, name.strip())), None)


def link_limit(name: str, bytes: int) -> tuple[float, str] | None:
    """The shortest time in us for `bytes` to another GPU like `name`, and what limits it; None if that is unknown."""
    found = peaks(name)
    if found is None or found.link_gb_per_s is None:
        return None
    return bytes / found.link_gb_per_s / 1e3, "NVLink (datasheet)"
