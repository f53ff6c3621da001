"""Devices, peaks and the environment record, on an NVML made of Python where no driver is."""

from __future__ import annotations

import ctypes
import getpass
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from suite import hardware
from suite.doctor import facts as doctor
from suite.hardware import cuda_driver, host, monitor, record
from suite.hardware.datasheet import PEAKS

# ---- peaks -----------------------------------------------------------------------------------------------------------


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
def test_no_device_gets_another_ones_peaks(name: str) -> None:
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
    assert h200.tflops == {"fp32": 67, "tf32": 494.5, "fp16": 989, "bf16": 989, "fp8": 1979}


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
    assert hardware.limit("NVIDIA H200", 10, 10, "float64") is None


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


# ---- NVML ------------------------------------------------------------------------------------------------------------


class FakeNvmlError(Exception):
    pass


class FakeNvml:
    """Two H200s; the second refuses everything but its name."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    pids: tuple[int, ...] = ()

    def __getattr__(self, name: str) -> object:
        answers = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: {"GPU-aaa": 0, "GPU-bbb": 1}[uuid],
            "nvmlDeviceGetUUID": lambda handle: ("GPU-aaa", b"GPU-bbb")[handle],
            "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
            "nvmlSystemGetDriverVersion": lambda: b"580.159.04",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13010,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=143 << 30, free=140 << 30),
            "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
            "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetMaxClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetTemperature": lambda handle, sensor: 41,
            "nvmlDeviceGetPowerUsage": lambda handle: 123_456,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetEccMode": lambda handle: [1, 1],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 4,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 987_654,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=pid) for pid in self.pids],
        }

        def answer(*arguments: object) -> object:
            if arguments and arguments[0] == 1 and name not in ("nvmlDeviceGetUUID", "nvmlDeviceGetHandleByIndex"):
                raise FakeNvmlError("not supported")
            return answers[name](*arguments)

        return answer


@pytest.fixture
def fake_nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setattr(monitor, "_load", lambda: (fake, ""))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def test_devices(fake_nvml: FakeNvml) -> None:
    first, second = hardware.devices()
    assert first["name"] == "NVIDIA H200"
    assert first["compute_capability"] == [9, 0]
    assert (first["driver"], first["driver_cuda"]) == ("580.159.04", "13.1")
    assert (first["power_limit_w"], first["ecc"], first["processes"]) == (700.0, True, 0)
    assert second["memory_total_bytes"] is None
    json.dumps([first, second])
    assert hardware.memory_bytes("cuda", 0) == 140 << 30
    assert hardware.memory_bytes("cuda", 1) is None
    assert hardware.memory_bytes("cuda", 2) is None


def test_state(fake_nvml: FakeNvml) -> None:
    fake_nvml.pids = (os.getpid(), 1)
    state = hardware.state(hardware.nvml_handle(0))
    assert state == hardware.State(1980, 3201, 41, 123.456, 4, 1)
    assert hardware.state(hardware.nvml_handle(1)) == hardware.State(None, None, None, None, 0, 0)
    assert hardware.state(None) is None
    assert hardware.energy_mj(0) == 987_654
    assert hardware.energy_mj(1) is None


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("GPU-bbb", [1]), ("GPU-b,0", [1, 0]), ("", []), ("0,7,1", [0]),
     ("-1", [])],
)  # fmt: skip
def test_visible_devices(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[int]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert monitor.visible_handles() == expected


def test_a_uuid_decides(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert hardware.nvml_handle(0) == 1
    assert hardware.nvml_handle(0, uuid="aaa") == hardware.nvml_handle(0, uuid="GPU-aaa") == 0
    assert hardware.nvml_handle(5) is None


@pytest.mark.parametrize(
    ("pids", "own", "others"), [([], 5, 0), ([5], 5, 0), ([5, 6, 7], 5, 2), ([900], 5, 0), ([900, 901], 5, 1)]
)
def test_other_processes(pids: list[int], own: int, others: int) -> None:
    assert monitor.other_processes(pids, own) == others


def test_clock_reasons() -> None:
    assert hardware.clock_reasons(0) == []
    assert hardware.clock_reasons(0x24) == ["power cap", "thermal slowdown by software"]
    assert hardware.clock_reasons(0x1000) == ["unknown (0x1000)"]
    assert hardware.clock_reasons(hardware.SLOWDOWNS) == [
        "hardware slowdown",
        "thermal slowdown by software",
        "thermal slowdown by hardware",
        "power brake",
    ]


def test_without_nvml_there_are_no_devices_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_load", lambda: (None, "no NVIDIA driver answers"))
    assert hardware.devices() == []
    assert hardware.nvml_handle(0) is None
    assert hardware.state(0) is None
    assert hardware.energy_mj(0) is None
    assert hardware.why_no_nvml() == "no NVIDIA driver answers"


# ---- the host --------------------------------------------------------------------------------------------------------


def test_cpu_name(tmp_path: Path) -> None:
    (tmp_path / "x86").write_text("processor\t: 0\nmodel name\t: AMD EPYC 9554\nflags\t\t: fpu\n")
    (tmp_path / "arm").write_text("processor\t: 0\nBogoMIPS\t: 50\n")
    assert host.cpu_name(tmp_path / "x86") == "AMD EPYC 9554"
    assert host.cpu_name(tmp_path / "arm")
    assert host.cpu_name(tmp_path / "none")


def test_cpu_cache(tmp_path: Path) -> None:
    for index, size in enumerate(["48K\n", "2048K\n", "105M\n", "odd\n", ""]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size)
    assert host.cpu_cache_bytes(tmp_path) == 105 << 20
    assert host.cpu_cache_bytes(tmp_path / "none") == host.DEFAULT_CACHE_BYTES


def test_cpu_memory() -> None:
    assert 0 < hardware.memory_bytes("cpu") <= hardware.cpu_facts()["memory_total_bytes"]


# ---- the environment record ------------------------------------------------------------------------------------------


def test_environment_is_json_and_names_nobody() -> None:
    text = json.dumps(hardware.environment("cpu"))
    names = {socket.gethostname(), str(Path.home()), str(Path.cwd()), getpass.getuser()} - {"root", "localhost"}
    assert not [name for name in names if len(name) > 3 and name in text]
    loaded = json.loads(text)
    assert loaded["packages"]["torch"]
    assert loaded["device"]["type"] == "cpu"
    assert set(loaded) == {
        "date_utc", "command", "device", "host", "os", "python", "packages", "toolkits", "git",
    }  # fmt: skip


def test_environment_of_a_gpu(fake_nvml: FakeNvml) -> None:
    device = hardware.environment("cuda", 0)["device"]
    assert device["name"] == "NVIDIA H200"
    assert device["peaks"]["source"] == "https://www.nvidia.com/en-us/data-center/h200/"
    assert record.device_facts("cuda", 7)["peaks"] is None


def test_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    argv = [
        "/home/someone/suite/__main__.py",
        "compare",
        "--op",
        "matmul",
        f"--out={tmp_path}/results",
        "/home/someone/x",
    ]
    assert record.command_line(argv) == "python -m suite compare --op matmul --out=results x"
    assert record.command_line([]) == ""


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_git_state(tmp_path: Path) -> None:
    assert record.git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "m")
    clean = record.git_state(tmp_path)
    assert clean is not None
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (tmp_path / "sub").mkdir()
    assert record.git_state(tmp_path / "sub") is None  # the suite installed inside somebody else's checkout
    (tmp_path / "b").write_text("2")
    assert record.git_state(tmp_path) == {**clean, "dirty": True}


def test_missing_tools_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert record.nvcc_version() is None
    assert record.gxx_version() is None
    assert record.git_state(record.ROOT) is None
    assert record.output_of("false") is None


def test_import_is_light() -> None:
    """`python -m suite list` imports this: no framework, no NumPy, no driver."""
    heavy = ("torch", "jax", "triton", "numpy", "pandas", "pynvml")
    code = f"import sys; import suite.hardware, suite.doctor.facts; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=record.ROOT)
    assert done.stdout.strip() == "[]"


# ---- doctor ----------------------------------------------------------------------------------------------------------


def printed(**options: bool) -> str:
    console = Console(record=True, width=160, file=open(os.devnull, "w"))  # noqa: SIM115
    doctor.show(console, **options)
    return console.export_text()


def test_doctor_prints_and_is_json() -> None:
    text = printed()
    assert "Packages" in text
    assert "torch" in text
    sections = json.loads(printed(as_json=True))
    assert [section["title"] for section in sections][-3:] == ["Tools", "Packages", "What runs here"]


def test_doctor_with_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(record, "package_version", lambda name: None)
    monkeypatch.setattr(cuda_driver, "problem", lambda: "libcuda cannot be loaded")
    monkeypatch.setattr(monitor, "_load", lambda: (None, "nvidia-ml-py is not installed"))
    text = printed()
    assert "pip install torch" in text
    assert "apt-get install g++" in text
    assert "install NVIDIA's driver" in text


class FakeDriver:
    """libcuda with one device, an older one that does not know about clusters."""

    def __init__(self, init: int = 0) -> None:
        self.init = init

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.init

    def cuDeviceGetCount(self, count: object) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device: object, index: int) -> int:  # noqa: N802
        return 0

    def cuDeviceGetName(self, name: object, size: int, device: object) -> int:  # noqa: N802
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceTotalMem_v2(self, memory: object, device: object) -> int:  # noqa: N802
        memory._obj.value = 143 << 30
        return 0

    def cuDeviceGetAttribute(self, value: object, number: int, device: object) -> int:  # noqa: N802
        known = {16: 132, 36: 3_201_000, 37: 6144, 38: 60 << 20, 75: 9, 76: 0, 13: 1_980_000, 97: 227 << 10}
        if number == 120:
            return 1
        value._obj.value = known.get(number, 1)
        return 0


def test_doctor_on_a_gpu(monkeypatch: pytest.MonkeyPatch, fake_nvml: FakeNvml) -> None:
    from suite.timing import recorder_cupti

    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver())
    monkeypatch.setattr(recorder_cupti, "why_not", lambda: "CUPTI is taken by Nsight: run without it")
    text = printed()
    assert "GPU 0: NVIDIA H200" in text
    assert "132 at up to 1980 MHz" in text
    assert "4917 GB/s in theory" in text
    assert "227 KiB if asked for" in text
    assert "clusters no" in text
    assert "4800 GB/s" in text
    assert "clocks held by: power cap" in text
    assert "CUPTI is taken by Nsight" in text


def test_a_driver_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(init=100))
    assert cuda_driver.problem() == "cuInit returned error 100"
    assert cuda_driver.devices() == []
    assert "cuInit returned error 100  ->  check nvidia-smi" in printed()


@pytest.mark.gpu
def test_the_gpu_of_this_machine() -> None:
    import torch

    properties = torch.cuda.get_device_properties(0)
    (attributes,) = [gpu["attributes"] for gpu in cuda_driver.devices() if gpu["index"] == 0]
    assert attributes["sm_count"] == properties.multi_processor_count
    assert attributes["l2_bytes"] == properties.L2_cache_size
    assert hardware.devices()[0]["name"] == properties.name
    handle = hardware.nvml_handle(0, uuid=str(properties.uuid))
    state = hardware.state(handle)
    assert state is not None
    assert state.clock_sm_mhz
    assert hardware.energy_mj(handle)
