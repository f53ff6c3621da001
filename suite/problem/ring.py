"""A long range of GPU addresses over little memory: all of it maps one block, again and again.

The block is NaN where nothing was written, and the range continues before the first byte. A wrong offset therefore
leads to NaN, or to another element, and does not end the CUDA context.
Source: CUDA Driver API, "Virtual Memory Management".
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from suite.hardware.device_memory import DeviceMemory, driver

GRANULE = 2**21
"""The size of blocks is a multiple of this."""
LEAST_BYTES = 33 * GRANULE
"""Size of the smallest block: an odd number of granules, so addresses a power of two apart are different bytes."""
PATTERN = 0xFF
PINNED, ON_DEVICE, READ_AND_WRITE, FILE_DESCRIPTOR = 1, 1, 3, 1
"""Values of enumerations in cuda.h."""
OUT_OF_MEMORY = 2


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


def block_bytes(used: int) -> int:
    """Return the size of the block for so many bytes of elements, which fill at most half of it."""
    return max(LEAST_BYTES, GRANULE * (-(-2 * used // GRANULE) | 1))


def reserve(nbytes: int, block: int, device: torch.device) -> torch.Tensor:
    """Return `nbytes` bytes over new memory of `block` bytes, which are NaN. Raises OSError if the driver refuses."""
    with created(block, device) as handle:
        return blank(mapped(handle, block, nbytes, device), block)


def reserve_shared(nbytes: int, block: int, device: torch.device) -> tuple[torch.Tensor, int]:
    """Return such bytes, and a file descriptor by which another process maps them too (`attach`)."""
    with created(block, device, shared=True) as handle:
        memory, descriptor = mapped(handle, block, nbytes, device), ctypes.c_int()
        _call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, FILE_DESCRIPTOR, ctypes.c_uint64(0))
        return blank(memory, block), descriptor.value


def attach(descriptor: int, nbytes: int, block: int, device: torch.device) -> torch.Tensor:
    """Map the bytes of another process's `reserve_shared`. The descriptor stays open."""
    torch.cuda.synchronize(device)  # the context is current in this thread
    handle = ctypes.c_uint64()
    _call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), FILE_DESCRIPTOR)
    with released(handle):
        return mapped(handle, block, nbytes, device)


@cache
def is_available(device: torch.device) -> bool:
    """True if the driver maps a block twice, and shares it. False on some virtual machines."""
    try:
        memory, descriptor = reserve_shared(2 * LEAST_BYTES, LEAST_BYTES, device)
        try:
            other = attach(descriptor, 2 * LEAST_BYTES, LEAST_BYTES, device)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    memory[:16] = 7
    return bool((other[LEAST_BYTES : LEAST_BYTES + 16] == 7).all())


def blank(memory: torch.Tensor, block: int) -> torch.Tensor:
    memory[:block] = PATTERN
    return memory


@contextmanager
def created(block: int, device: torch.device, *, shared: bool = False) -> Iterator[ctypes.c_uint64]:
    """Create a block. It is freed once nothing maps it."""
    torch.cuda.synchronize(device)
    handle, properties = ctypes.c_uint64(), Properties(PINNED, FILE_DESCRIPTOR * shared, _location(device))
    arguments = ctypes.byref(handle), ctypes.c_size_t(block), ctypes.byref(properties), ctypes.c_uint64(0)
    status = driver().cuMemCreate(*arguments)
    if status == OUT_OF_MEMORY:
        torch.cuda.empty_cache()  # torch's allocator may keep free memory
        status = driver().cuMemCreate(*arguments)
    _refuse(status, "cuMemCreate")
    with released(handle):
        yield handle


@contextmanager
def released(handle: ctypes.c_uint64) -> Iterator[None]:
    try:
        yield
    finally:
        driver().cuMemRelease(handle)


def mapped(handle: ctypes.c_uint64, block: int, nbytes: int, device: torch.device) -> torch.Tensor:
    """Map a block over a new range of addresses; return the `nbytes` bytes from its middle on."""
    before = -(-nbytes // block) * block
    size, address = ctypes.c_size_t(2 * before), ctypes.c_uint64()
    zero, whole = ctypes.c_uint64(0), ctypes.c_size_t(block)
    _call("cuMemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(GRANULE), zero, zero)
    memory = DeviceMemory(address.value + before, nbytes)
    weakref.finalize(memory, unmap, driver(), address, size).atexit = False
    for offset in range(0, 2 * before, block):
        at = ctypes.c_uint64(address.value + offset)
        _call("cuMemMap", at, whole, ctypes.c_size_t(0), handle, zero)
    access = Access(_location(device), READ_AND_WRITE)
    _call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
    return torch.as_tensor(memory, device=device)


def unmap(library: Any, address: ctypes.c_uint64, size: ctypes.c_size_t) -> None:
    library.cuCtxSynchronize()  # kernels may still use the range
    library.cuMemUnmap(address, size)
    library.cuMemAddressFree(address, size)


def _location(device: torch.device) -> Location:
    return Location(ON_DEVICE, torch.cuda.current_device() if device.index is None else device.index)


def _call(name: str, *arguments: Any) -> None:
    _refuse(getattr(driver(), name)(*arguments), name)


def _refuse(status: int, name: str) -> None:
    if status != 0:
        raise OSError(f"{name} failed with CUDA error {status}")
