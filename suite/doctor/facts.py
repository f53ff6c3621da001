"""Lists the devices, tools and packages of this machine, and says how to install missing ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from suite import hardware
from suite.hardware import cuda_driver, environment

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Fact:
    """One fact. `ok` is None if there is nothing to judge. `hint` says how to install a missing tool or package."""

    name: str
    value: str
    ok: bool | None = None
    hint: str = ""


@dataclass(frozen=True)
class Section:
    """Facts under a title."""

    title: str
    facts: tuple[Fact, ...]


PACKAGES = (
    ("torch", "inputs of every implementation; torch implementations"),
    ("triton", "triton implementations"),
    ("jax", "jax implementations"),
    ("numpy", "numpy implementations"),
    ("pandas", "tables"),
    ("ninja", "cuda implementations"),
    ("nvidia-ml-py", "clocks, temperature, power, energy"),
)
GPU_PACKAGES = (("cupti-python", "device_us on a GPU"),)
TOOLS = (
    (
        "nvcc",
        "builds cuda implementations for the GPU",
        r"release [\d.]+, V([\d.]+)",
        "apt-get install cuda-toolkit-13-0",
    ),
    ("ptxas", "registers and spills", r"release [\d.]+, V([\d.]+)", "comes with nvcc"),
    ("g++", "builds cuda implementations", r"\) ([\d.]+)", "apt-get install g++"),
    ("ncu", "profiles kernels", r"Version ([\d.]+)", "apt-get install cuda-nsight-compute-13-0"),
    ("compute-sanitizer", "finds races and bad accesses", r"Version ([\d.]+)", "apt-get install cuda-sanitizer-13-0"),
    ("git", "names the commit in results", r"version ([\d.]+)", "apt-get install git"),
)
"""Name, purpose, pattern of the version in the tool's output, command to install (cuda-*: from NVIDIA's repository)."""


def show(console: Console, as_json: bool = False) -> None:
    """Print `facts()`, as tables or as one JSON document."""
    sections = facts()
    if as_json:
        console.print_json(json.dumps([asdict(section) for section in sections]))
        return
    from rich.table import Table
    from rich.text import Text

    marks = {True: Text("yes", "green"), False: Text("no", "red"), None: Text("")}
    for section in sections:
        table = Table(title=section.title, title_justify="left", show_header=False, box=None, pad_edge=False)
        for fact in section.facts:
            value = fact.value + (f"  ->  {fact.hint}" if fact.hint else "")
            table.add_row(Text(fact.name), marks[fact.ok], Text(value))
        console.print(table)
        console.print()


def facts() -> list[Section]:
    """Facts on the host, every GPU, tools, packages and abilities of this machine. Imports no framework."""
    gpus = cuda_driver.devices()
    sections = [Section("Host", tuple(_host()))]
    sections += [Section(f"GPU {gpu['index']}: {gpu['name']}", tuple(_gpu(gpu))) for gpu in gpus]
    if not gpus:
        why = cuda_driver.problem() or "the driver lists no device"
        sections.append(Section("GPU", (Fact("devices", f"none: {why}", False, _no_gpu_hint(why)),)))
    sections.append(Section("Tools", tuple(_tools(bool(gpus)))))
    sections.append(Section("Packages", tuple(_packages(bool(gpus)))))
    sections.append(Section("What runs here", tuple(_abilities(bool(gpus)))))
    return sections


def _no_gpu_hint(why: str) -> str:
    if "libcuda" in why:
        return "install NVIDIA's driver; without a GPU kernels are interpreted or emulated, for agreement only"
    return "check nvidia-smi and CUDA_VISIBLE_DEVICES"


def _host() -> Iterator[Fact]:
    cpu = hardware.cpu_facts()
    yield Fact("processor", f"{cpu['name']}, {cpu['cores']} cores")
    if cpu["memory_total_bytes"] is not None:
        yield Fact("memory", f"{_gib(cpu['memory_total_bytes'])}, {_gib(cpu['memory_available_bytes'])} available")
    yield Fact("last-level cache", _mib(cpu["last_level_cache_bytes"]))
    yield Fact("system", environment.os_name())


def _gpu(gpu: dict[str, Any]) -> Iterator[Fact]:
    a = gpu["attributes"]
    clock, memory_clock = a["clock_khz"] / 1000, a["memory_clock_khz"] / 1000
    bandwidth = 2 * memory_clock * 1e6 * a["memory_bus_bits"] / 8 / 1e9  # two transfers per cycle
    yield Fact("compute capability", f"{a['major']}.{a['minor']}")
    yield Fact("multiprocessors", f"{a['sm_count']} at up to {clock:.0f} MHz")
    yield Fact(
        "memory",
        f"{_gib(gpu['memory_bytes'])}, {a['memory_bus_bits']} bits at {memory_clock:.0f} MHz, "
        f"{bandwidth:.0f} GB/s in theory, ECC {'on' if a['ecc'] else 'off'}",
    )
    yield Fact("L2 cache", f"{_mib(a['l2_bytes'])}, {_mib(a['persisting_l2_bytes'])} can be set aside")
    yield Fact("grid limit", f"{a['max_grid_x']} x {a['max_grid_y']} x {a['max_grid_z']}")
    yield Fact(
        "block limit",
        f"{a['max_block_x']} x {a['max_block_y']} x {a['max_block_z']}, {a['max_threads_per_block']} threads",
    )
    yield Fact(
        "per multiprocessor",
        f"{a['threads_per_sm']} threads in {a['blocks_per_sm']} blocks, "
        f"{a['registers_per_sm']} registers, {_kib(a['shared_per_sm'])} shared memory",
    )
    yield Fact(
        "per block",
        f"{a['registers_per_block']} registers, {_kib(a['shared_per_block'])} shared memory, "
        f"{_kib(a['shared_per_block_optin'])} if asked for",
    )
    yield Fact(
        "launches",
        f"warps of {a['warp_size']}, {a['copy_engines']} copy engines, clusters "
        f"{'yes' if a['cluster_launch'] else 'no'}, cooperative {'yes' if a['cooperative_launch'] else 'no'}",
    )
    peaks = hardware.peaks(gpu["name"])
    if peaks is None:
        yield Fact("peaks", "no cited peak for this GPU: of_limit stays blank")
    else:
        rates = ", ".join(f"{name} {rate:g}" for name, rate in peaks.tflops.items())
        yield Fact("peaks", f"{peaks.gb_per_s:g} GB/s; TFLOP/s {rates} ({peaks.source})")
    for device in hardware.devices():
        if device["index"] == gpu["index"]:
            yield from _now(device)


def _now(device: dict[str, Any]) -> Iterator[Fact]:
    yield Fact("driver", f"{device['driver']}, for CUDA up to {device['driver_cuda']}")
    free, processes = device["memory_free_bytes"], device["processes"]
    yield Fact("in use", f"{processes} processes, {_gib(free) if free is not None else '?'} free", processes == 0)
    state = hardware.state(hardware.nvml_handle(device["index"]))
    if state is not None:
        reasons = ", ".join(hardware.clock_reasons(state.clock_reasons)) or "none"
        yield Fact(
            "now",
            f"SM {_or_unknown(state.clock_sm_mhz)} MHz, {_or_unknown(state.temperature_c)} C, "
            f"{_or_unknown(state.power_w)} W of {_or_unknown(device['power_limit_w'])}; clocks held by: {reasons}",
        )


def _tools(gpu: bool) -> Iterator[Fact]:
    for name, purpose, pattern, hint in TOOLS:
        text = environment.output_of(name, "--version")
        needed = gpu or name in ("g++", "git")
        if text is None:
            yield Fact(name, f"not found ({purpose})", False if needed else None, hint)
        else:
            found = re.search(pattern, text)
            yield Fact(name, found.group(1) if found else "found", True)


def _packages(gpu: bool) -> Iterator[Fact]:
    for name, purpose in (*PACKAGES, *(GPU_PACKAGES if gpu else ())):
        version = environment.package_version(name)
        wanted = "'cupti-python==13.0.*'" if name == "cupti-python" else name
        missing = Fact(name, f"not installed ({purpose})", False, f"pip install {wanted}")
        yield Fact(name, version, True) if version is not None else missing


def _abilities(gpu: bool) -> Iterator[Fact]:
    """The work that this combination of devices, tools and packages can run and measure."""
    torch = environment.package_version("torch")
    if gpu and torch is not None and torch.endswith("+cpu"):
        yield Fact("torch on the GPU", f"no: {torch} is a CPU build", False, "pip install torch (the CUDA build)")
    plugins = [name for name in ("jax-cuda13-plugin", "jax-cuda12-plugin") if environment.package_version(name)]
    if gpu and environment.package_version("jax") is not None:
        yield Fact(
            "jax on the GPU",
            ", ".join(plugins) or "no CUDA plugin",
            bool(plugins),
            "" if plugins else "pip install 'jax[cuda13]'",
        )
    if gpu:
        from suite.timing.recorder_cupti import unavailable_reason

        why = unavailable_reason()
        yield Fact("device_us", why or "recorded by CUPTI", not why)
    else:
        yield Fact("device_us", "on the CPU only: wall time of native implementations")
    nvcc, gxx = environment.nvcc_version(), environment.gxx_version()
    if gpu:
        yield Fact("cuda implementations", "built by nvcc" if nvcc else "nvcc is missing", nvcc is not None)
    else:
        yield Fact(
            "cuda implementations", "built for the host, for agreement" if gxx else "g++ is missing", gxx is not None
        )


def _gib(bytes: int) -> str:
    return f"{bytes / 2**30:.1f} GiB"


def _mib(bytes: int) -> str:
    return f"{bytes / 2**20:.1f} MiB"


def _kib(bytes: int) -> str:
    return f"{bytes / 2**10:g} KiB"


def _or_unknown(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
