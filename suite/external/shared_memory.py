"""Memory that a worker and an external process both map: an in-memory file on a CPU, a driver allocation on a GPU."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from suite.core.errors import SuiteError
from suite.external.protocol import Block, Operand
from suite.hardware.device_memory import DeviceMemory, driver
from suite.problem import ring

IPC_HANDLE_BYTES = 64
LAZY_PEER_ACCESS = 1
SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class Shared:
    """Bytes that `block` names to another process. A block without a handle is sent with the open file `descriptor`."""

    bytes: torch.Tensor
    block: Block
    descriptor: int | None = None


def allocate(nbytes: int, device: torch.device, block: int = 0) -> Shared:
    """New memory, zeroed on a CPU. It is freed with the last tensor that uses it. block: see `far.block_of`."""
    if nbytes == 0:
        return Shared(torch.empty(0, dtype=torch.uint8, device=device), Block(0))
    if device.type == "cuda" and block:
        memory, descriptor = ring.reserve_shared(nbytes, block, device)
        return _with_file(Shared(memory, Block(nbytes, ring=block), descriptor), descriptor)
    if device.type == "cuda":
        return _allocate_on_gpu(nbytes, device)
    descriptor = os.memfd_create("operand", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, nbytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SIZE_SEALS)  # reading a file that was cut ends a process
    return _with_file(Shared(_map(descriptor, nbytes), Block(nbytes), descriptor), descriptor)


def _with_file(shared: Shared, descriptor: int) -> Shared:
    """Close the file with the last use of the memory's description."""
    weakref.finalize(shared, os.close, descriptor)
    return shared


def attach(blocks: Sequence[Block], descriptors: Sequence[int], device: torch.device) -> list[torch.Tensor]:
    """Map the `blocks` of another process and return their bytes. Closes the descriptors."""
    left = list(descriptors)
    found = []
    for block in blocks:
        if block.nbytes == 0:
            found.append(torch.empty(0, dtype=torch.uint8, device=device))
        elif block.handle:
            found.append(_open_on_gpu(block, device))
        else:
            descriptor = left.pop(0)
            there = block.nbytes, block.ring, device
            found.append(ring.attach(descriptor, *there) if block.ring else _map(descriptor, block.nbytes))
            os.close(descriptor)
    return found


def describe(tensor: torch.Tensor, block: int) -> Operand:
    """Description of a tensor whose storage is the whole of the block with this index."""
    return Operand(
        block,
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        int(tensor.storage_offset()),
    )


def tensor_of(operand: Operand, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
    """The inverse of `describe`."""
    memory = blocks[operand.block]
    empty = torch.empty(0, dtype=getattr(torch, operand.dtype), device=memory.device)
    return empty.set_(memory.untyped_storage(), operand.offset, operand.shape, operand.strides)


def _map(descriptor: int, nbytes: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(descriptor, nbytes), dtype=torch.uint8)


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * IPC_HANDLE_BYTES),)


def _allocate_on_gpu(nbytes: int, device: torch.device) -> Shared:
    torch.cuda.synchronize(device)  # the context is current in this thread
    library, address, handle = driver(), ctypes.c_uint64(), _IpcHandle()
    status = library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes))
    if status == 2:  # CUDA_ERROR_OUT_OF_MEMORY: torch's allocator may keep free memory
        torch.cuda.empty_cache()
        status = library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes))
    _refuse(status, f"cuMemAlloc of {nbytes} bytes")
    memory = DeviceMemory(address.value, nbytes)
    weakref.finalize(memory, library.cuMemFree_v2, address)
    _refuse(library.cuIpcGetMemHandle(ctypes.byref(handle), address), "cuIpcGetMemHandle")
    return Shared(torch.as_tensor(memory, device=device), Block(nbytes, bytes(handle).hex()))


def _open_on_gpu(block: Block, device: torch.device) -> torch.Tensor:
    torch.cuda.synchronize(device)
    library, address = driver(), ctypes.c_uint64()
    handle = _IpcHandle.from_buffer_copy(bytes.fromhex(block.handle))
    flags = ctypes.c_uint(LAZY_PEER_ACCESS)
    _refuse(library.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, flags), "cuIpcOpenMemHandle")
    memory = DeviceMemory(address.value, block.nbytes)
    weakref.finalize(memory, library.cuIpcCloseMemHandle, address)
    return torch.as_tensor(memory, device=device)


def _refuse(status: int, what: str) -> None:
    if status != 0:
        raise SuiteError(f"{what} failed with CUDA error {status}; a user's file needs CUDA IPC between two processes")
