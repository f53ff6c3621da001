"""The virtual memory management of libcuda on a CPU: blocks are files in memory, and ranges of addresses map them."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from suite.problem.far import NO_RESERVE
from suite.problem.ring import GRANULE

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
MAP_FIXED, NO_ACCESS = 0x10, 0


def host_memory(address: int, nbytes: int) -> np.ndarray:
    """Bytes at an address, in the place of `DeviceMemory`."""
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=np.uint8)


class MappedDriver:
    """`ranges` has the size of each reserved range by its address, `handles` the open blocks. `refused`: a function
    that returns an error."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.ranges: dict[int, int] = {}
        self.handles: set[int] = set()

    def __getattribute__(self, name: str):
        return (
            (lambda *arguments: 801)
            if name == object.__getattribute__(self, "refused")
            else super().__getattribute__(name)
        )

    def cuMemCreate(self, handle, size, properties, flags) -> int:  # noqa: N802
        assert size.value % GRANULE == 0
        handle._obj.value = os.memfd_create("block")
        os.ftruncate(handle._obj.value, size.value)
        self.handles.add(handle._obj.value)
        return 0

    def cuMemRelease(self, handle) -> int:  # noqa: N802
        self.handles.remove(handle.value)
        os.close(handle.value)
        return 0

    def cuMemExportToShareableHandle(self, descriptor, handle, kind, flags) -> int:  # noqa: N802
        descriptor._obj.value = os.dup(handle.value)
        return 0

    def cuMemImportFromShareableHandle(self, handle, descriptor, kind) -> int:  # noqa: N802
        handle._obj.value = os.dup(descriptor.value)
        self.handles.add(handle._obj.value)
        return 0

    def cuMemAddressReserve(self, address, size, alignment, hint, flags) -> int:  # noqa: N802
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        address._obj.value = LIBC.mmap(None, size.value, NO_ACCESS, flags, -1, 0)
        self.ranges[address._obj.value] = size.value
        return 0

    def cuMemMap(self, address, size, offset, handle, flags) -> int:  # noqa: N802
        flags = mmap.MAP_SHARED | MAP_FIXED
        given = LIBC.mmap(
            address.value, size.value, mmap.PROT_READ | mmap.PROT_WRITE, flags, handle.value, offset.value
        )
        return 0 if given == address.value else 1

    def cuMemSetAccess(self, address, size, access, count) -> int:  # noqa: N802
        return 0 if self.ranges[address.value] == size.value else 1

    def cuCtxSynchronize(self) -> int:  # noqa: N802
        return 0

    def cuMemUnmap(self, address, size) -> int:  # noqa: N802
        return 0 if self.ranges[address.value] == size.value else 1

    def cuMemAddressFree(self, address, size) -> int:  # noqa: N802
        assert self.ranges.pop(address.value) == size.value
        return LIBC.munmap(address.value, size.value)
