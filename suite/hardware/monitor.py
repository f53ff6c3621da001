"""Reads device properties and state from NVML: clocks, power, temperature, energy. Creates no CUDA context."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

IDLE = 0x1
CLOCK_REASONS = {
    0x1: "idle",
    0x2: "clocks set by a user",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
    0x100: "display clocks",
}
"""The bits that nvmlDeviceGetCurrentClocksEventReasons returns, in words."""
SLOWDOWNS = 0x8 | 0x20 | 0x40 | 0x80
"""Clock reasons that make a timing unrepresentative: heat and power supply. A power cap is not among them, because
large matrix products normally run at it."""


@dataclass(frozen=True)
class State:
    """One reading of a device. A value is None if the device does not report it."""

    clock_sm_mhz: float | None
    clock_memory_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    clock_reasons: int
    other_processes: int
    clock_sm_max_mhz: float | None = None
    """The highest SM clock of the device."""


@lru_cache(maxsize=1)
def _load() -> tuple[Any, str]:
    try:
        import pynvml
    except ImportError:
        return None, "nvidia-ml-py is not installed: pip install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"no NVIDIA driver answers: {error}"
    return pynvml, ""


def nvml() -> Any:
    """The initialised module `pynvml`, or None."""
    return _load()[0]


def nvml_problem() -> str:
    """The reason why NVML is not available; empty if it is."""
    return _load()[1]


def clock_reasons(bits: int) -> list[str]:
    """The clock reasons in `bits`, in words."""
    words = [word for bit, word in CLOCK_REASONS.items() if bits & bit]
    unknown = bits & ~sum(CLOCK_REASONS)
    return words + ([f"unknown ({unknown:#x})"] if unknown else [])


def nvml_handle(index: int, uuid: str = "") -> Any:
    """NVML's handle of CUDA device `index`, or None.

    CUDA and NVML may number devices differently (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER). If `uuid` is given, which a
    process with a CUDA context knows, it identifies the device instead of `index`.
    """
    lib = nvml()
    if lib is None:
        return None
    if uuid:
        return _ask(lib.nvmlDeviceGetHandleByUUID, uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
    visible = visible_handles()
    return visible[index] if index < len(visible) else None


def visible_handles() -> list[Any]:
    """NVML handles of the devices that CUDA_VISIBLE_DEVICES selects, in that order."""
    lib = nvml()
    if lib is None:
        return []
    everything = [lib.nvmlDeviceGetHandleByIndex(i) for i in range(lib.nvmlDeviceGetCount())]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return everything
    handles: list[Any] = []
    uuids = [_text(_ask(lib.nvmlDeviceGetUUID, handle)) for handle in everything]
    for entry in (part.strip() for part in chosen.split(",")):
        if entry.isdigit() and int(entry) < len(everything):
            handles.append(everything[int(entry)])
        elif matches := [h for h, u in zip(everything, uuids, strict=True) if entry and u.startswith(entry)]:
            handles.append(matches[0])
        else:
            break  # CUDA ignores every entry after an invalid one
    return handles


def devices() -> list[dict[str, Any]]:
    """Properties of every visible device as JSON values. Empty without a driver."""
    return [_facts(index, handle) for index, handle in enumerate(visible_handles())]


def uuid(index: int = 0) -> str:
    """The UUID of CUDA device `index`, such as `GPU-5b32...`; empty without one."""
    handle = nvml_handle(index)
    return "" if handle is None else _text(_ask(nvml().nvmlDeviceGetUUID, handle))


def state(handle: Any) -> State | None:
    """The present state of a device; None without NVML or handle."""
    lib = nvml()
    if lib is None or handle is None:
        return None
    milliwatts = _ask(lib.nvmlDeviceGetPowerUsage, handle)
    return State(
        clock_sm_mhz=_ask(lib.nvmlDeviceGetClockInfo, handle, lib.NVML_CLOCK_SM),
        clock_memory_mhz=_ask(lib.nvmlDeviceGetClockInfo, handle, lib.NVML_CLOCK_MEM),
        temperature_c=_ask(lib.nvmlDeviceGetTemperature, handle, lib.NVML_TEMPERATURE_GPU),
        power_w=milliwatts / 1000 if milliwatts is not None else None,
        clock_reasons=_ask(_reasons_function(lib), handle) or 0,
        other_processes=other_processes(_pids(handle), own_processes),
        clock_sm_max_mhz=_ask(lib.nvmlDeviceGetMaxClockInfo, handle, lib.NVML_CLOCK_SM),
    )


def energy_mj(handle: Any) -> int | None:
    """Energy in millijoules since the driver was loaded; None if the device has no counter."""
    lib = nvml()
    return None if lib is None or handle is None else _ask(lib.nvmlDeviceGetTotalEnergyConsumption, handle)


own_processes = {os.getpid()}
"""Process ids of this process and of the processes that it started on the device."""


def other_processes(pids: list[int], own: Collection[int]) -> int:
    """The number of `pids` that are not in `own`. A container lists its own processes under other numbers."""
    return max(0, len(pids) - len(own)) if pids and not set(own) & set(pids) else len(set(pids) - set(own))


def _facts(index: int, handle: Any) -> dict[str, Any]:
    lib = nvml()
    memory = _ask(lib.nvmlDeviceGetMemoryInfo, handle)
    capability = _ask(lib.nvmlDeviceGetCudaComputeCapability, handle)
    ecc = _ask(lib.nvmlDeviceGetEccMode, handle)
    limit = _ask(lib.nvmlDeviceGetEnforcedPowerLimit, handle)
    cuda = _ask(lib.nvmlSystemGetCudaDriverVersion_v2)
    return {
        "index": index,
        "name": _name(handle),
        "uuid": _text(_ask(lib.nvmlDeviceGetUUID, handle)),
        "compute_capability": list(capability) if capability else None,
        "memory_total_bytes": memory.total if memory else None,
        "memory_free_bytes": memory.free if memory else None,
        "driver": _text(_ask(lib.nvmlSystemGetDriverVersion)),
        "driver_cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        "clock_sm_mhz": _ask(lib.nvmlDeviceGetClockInfo, handle, lib.NVML_CLOCK_SM),
        "clock_sm_max_mhz": _ask(lib.nvmlDeviceGetMaxClockInfo, handle, lib.NVML_CLOCK_SM),
        "clock_memory_max_mhz": _ask(lib.nvmlDeviceGetMaxClockInfo, handle, lib.NVML_CLOCK_MEM),
        "ecc": bool(ecc[0]) if ecc is not None else None,
        "power_limit_w": limit / 1000 if limit is not None else None,
        "processes": len(_pids(handle)),
    }


def _name(handle: Any) -> str:
    """The product's name. It ends with `MIG` if the GPU is divided, because a program then gets only a slice."""
    lib = nvml()
    name = _text(_ask(lib.nvmlDeviceGetName, handle))
    mode = _ask(lib.nvmlDeviceGetMigMode, handle) if hasattr(lib, "nvmlDeviceGetMigMode") else None
    return f"{name} MIG" if mode and mode[0] and "MIG" not in name else name


def gpus_here() -> int:
    """The number of GPUs that the driver has, visible or not."""
    lib = nvml()
    return 0 if lib is None else int(_ask(lib.nvmlDeviceGetCount) or 0)


def _pids(handle: Any) -> list[int]:
    return [process.pid for process in _ask(nvml().nvmlDeviceGetComputeRunningProcesses, handle) or []]


def _reasons_function(lib: Any) -> Callable[..., Any]:
    """The query of clock reasons, which NVML of driver 535 renamed."""
    new = getattr(lib, "nvmlDeviceGetCurrentClocksEventReasons", None)
    old = getattr(lib, "nvmlDeviceGetCurrentClocksThrottleReasons", None)

    def ask(handle: Any) -> Any:
        answer = _ask(new, handle) if new else None
        return answer if answer is not None or old is None else _ask(old, handle)

    return ask


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """The result of an NVML query; None if the device does not support it, which is common for vGPUs and MIG."""
    try:
        return question(*arguments)
    except nvml().NVMLError:
        return None


def _text(answer: Any) -> str:
    return answer.decode() if isinstance(answer, bytes) else (answer or "")
