"""Datasheet peaks, and the limits derived from them."""

from __future__ import annotations

import pytest

from suite import hardware
from suite.hardware.datasheet import PEAKS


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB SXM"),
        ("A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB PCIe"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA B200", "B200 (HGX)"),
    ],
)
def test_peaks_by_exact_name(name: str, product: str) -> None:
    found = hardware.peaks(name)
    assert found is not None
    assert found.product == product


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H200 NVL", "NVIDIA H100 NVL", "NVIDIA GH200 480GB", "NVIDIA L40", "NVIDIA GeForce RTX 4090 D", "H200", "",
     "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100X", "AMD Instinct MI300X"],
)  # fmt: skip
def test_a_similar_device_has_no_peaks(name: str) -> None:
    assert hardware.peaks(name) is None
    assert hardware.limit(name, 10**9, 10**9, "float32") is None


@pytest.mark.parametrize("entry", PEAKS, ids=lambda entry: entry.product)
def test_peaks_are_dense_ordered_and_cited(entry: hardware.Peaks) -> None:
    rates = entry.tflops
    assert entry.source.startswith("https://")
    assert rates["fp32"] <= rates["tf32"] < rates["bf16"] == rates["fp16"]
    assert rates["bf16"] == pytest.approx(2 * rates["tf32"], rel=0.03)
    assert rates.get("fp8", 2 * rates["bf16"]) == pytest.approx(2 * rates["bf16"], rel=0.03)


def test_h200() -> None:
    h200 = hardware.peaks("NVIDIA H200")
    assert h200 is not None
    assert h200.gb_per_s == 4800
    assert h200.tflops == {"fp64": 67, "fp32": 67, "tf32": 494.5, "fp16": 989, "bf16": 989, "fp8": 1979}


@pytest.mark.parametrize(
    ("bytes", "flops", "dtype", "precision", "us", "which"),
    [
        (3 * 4 * 2**28, 2**28, "float32", "ieee", 671.09, "memory"),
        (3 * 2 * 4096**2, 2 * 4096**3, "bfloat16", "ieee", 138.97, "arithmetic"),
        (3 * 2 * 4096**2, 2 * 4096**3, "torch.float16", None, 138.97, "arithmetic"),
        (3 * 4 * 4096**2, 2 * 4096**3, "float32", "tf32", 277.93, "arithmetic"),
        (3 * 4 * 4096**2, 2 * 4096**3, "float32", "ieee", 2051.33, "arithmetic"),
        (3 * 4096**2, 2 * 4096**3, "float8_e4m3fn", None, 69.45, "arithmetic"),
        (4800, 0, "int32", None, 0.001, "memory"),
    ],
)
def test_limit(bytes: int, flops: int, dtype: str, precision: str | None, us: float, which: str) -> None:
    limit = hardware.limit("NVIDIA H200", bytes, flops, dtype, precision)
    assert limit is not None
    assert limit[0] == pytest.approx(us, rel=1e-3)
    assert limit[1] == f"{which} (datasheet)"


def test_no_limit_without_a_cited_rate() -> None:
    assert hardware.limit("NVIDIA A100-SXM4-80GB", 10, 10, "float8_e5m2") is None
    assert hardware.limit("NVIDIA H200", 10, 10, "int8") is None


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("AMD EPYC 9554 64-Core Processor", "amd-epyc-9554-64-core-processor"),
        ("Intel(R) Xeon(R) Platinum 8480C", "intel-xeon-platinum-8480c"),
        ("../..", "unknown"),
    ],
)
def test_slug(name: str, slug: str) -> None:
    assert hardware.device_slug(name) == slug


@pytest.mark.parametrize("entry", [each for each in PEAKS if each.flops_per_cycle], ids=lambda each: each.product)
def test_rates_per_cycle_give_the_cited_rates_at_one_clock_of_the_product(entry: hardware.Peaks) -> None:
    """Some datasheets cite float32 at a higher clock than the tensor cores."""
    clocks = {name: entry.tflops[name] * 1e6 / flops for name, flops in entry.flops_per_cycle.items()}
    assert set(clocks) == set(entry.tflops)
    assert all(1300 < clock < 2600 for clock in clocks.values()), clocks
    tensor = [clock for name, clock in clocks.items() if name not in ("fp32", "fp64")]
    assert max(tensor) / min(tensor) < 1.015, clocks
    assert clocks["fp32"] / min(tensor) < 1.10, clocks
