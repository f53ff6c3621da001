"""Reads device attributes from the CUDA driver API through ctypes. Creates no CUDA context."""

from __future__ import annotations

import ctypes
from typing import Any

ATTRIBUTES = {
    "max_threads_per_block": 1,
    "max_block_x": 2,
    "max_block_y": 3,
    "max_block_z": 4,
    "max_grid_x": 5,
    "max_grid_y": 6,
    "max_grid_z": 7,
    "shared_per_block": 8,
    "constant_memory": 9,
    "warp_size": 10,
    "registers_per_block": 12,
    "clock_khz": 13,
    "sm_count": 16,
    "ecc": 32,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "threads_per_sm": 39,
    "copy_engines": 40,
    "major": 75,
    "minor": 76,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "cooperative_launch": 95,
    "shared_per_block_optin": 97,
    "blocks_per_sm": 106,
    "persisting_l2_bytes": 108,
    "reserved_shared_per_block": 111,
    "cluster_launch": 120,
}
"""Numbers of the enumeration CUdevice_attribute, from cuda.h."""


def problem() -> str:
    """The reason why the CUDA driver cannot be used; empty if it can."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"libcuda cannot be loaded ({error})"
    code = library.cuInit(0)
    return f"cuInit returned error {code}" if code else ""


def devices() -> list[dict[str, Any]]:
    """Index, name, memory in bytes and attributes of every device, in the order of a CUDA program."""
    if problem():
        return []
    library = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int(0)
    library.cuDeviceGetCount(ctypes.byref(count))
    return [_device(library, index) for index in range(count.value)]


def _device(library: ctypes.CDLL, index: int) -> dict[str, Any]:
    device, name, memory = ctypes.c_int(0), ctypes.create_string_buffer(256), ctypes.c_size_t(0)
    library.cuDeviceGet(ctypes.byref(device), index)
    library.cuDeviceGetName(name, len(name), device)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    attributes = {}
    for attribute, number in ATTRIBUTES.items():
        value = ctypes.c_int(0)  # stays 0 if an older driver lacks the attribute
        library.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        attributes[attribute] = value.value
    return {"index": index, "name": name.value.decode(), "memory_bytes": memory.value, "attributes": attributes}
