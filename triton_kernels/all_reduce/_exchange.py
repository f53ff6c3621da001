"""Shared parts of the kernels of all_reduce: the meeting of the same block of all ranks, and the parts of a vector."""

from typing import NamedTuple

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._runtime.interpreter import INTERPRET
from triton_kernels._runtime.symmetric import HEADER, MAX_BLOCKS, MAX_RANKS, Workspace, workspace

BLOCKS = 2 if INTERPRET else MAX_BLOCKS
"""Programs of every call: a program meets the same one of the other ranks, so all calls have as many."""
BLOCK = 2**15 if INTERPRET else 16384  # elements that a program moves at a time
FLAGS = tl.constexpr(MAX_RANKS)
WORDS = tl.constexpr(MAX_BLOCKS * MAX_RANKS)
DATA = tl.constexpr(HEADER)


@triton.jit
def memory_of(addresses_ptr, rank):
    """The memory of a rank, as int32."""
    return tl.load(addresses_ptr + rank).to(tl.pointer_type(tl.int32))


@triton.jit
def data_of(addresses_ptr, rank, start, dtype: tl.constexpr):
    """The data of a rank, `start` bytes after its header, as elements of `dtype`."""
    address = tl.load(addresses_ptr + rank) + DATA + start
    return tl.multiple_of(address.to(tl.pointer_type(dtype)), 16)


@triton.jit
def meet(addresses_ptr, rank, RANKS: tl.constexpr):
    """Wait for this program of every rank: what they wrote before is then visible. Leaves the flags 0."""
    tl.debug_barrier()  # the flags are set after the writes of all threads
    flags = tl.program_id(0) * FLAGS
    for peer in tl.static_range(RANKS):
        theirs = memory_of(addresses_ptr, peer) + flags + rank
        while tl.atomic_cas(theirs, 0, 1, sem="release", scope="sys") != 0:
            pass
    own = memory_of(addresses_ptr, rank) + flags
    for peer in tl.static_range(RANKS):
        while tl.atomic_cas(own + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass
    tl.debug_barrier()


class Parts(NamedTuple):
    """A call's memory, and the division of its vector into the parts of the programs."""

    memory: Workspace
    per_program: int
    """Elements of a program, a multiple of 16 for each rank."""
    bytes: int
    """Bytes of one buffer of the whole vector."""

    @property
    def half(self) -> int:
        """Bytes of the half of the memory that every other call uses, whatever its sizes."""
        return self.memory.data_bytes // 2


def parts_of(x: Tensor, group: dist.ProcessGroup, buffers: int) -> Parts:
    """The parts of x, and memory for `buffers` vectors of float32 or of x's type."""
    step = 16 * group.size()
    per_program = triton.cdiv(triton.cdiv(x.numel(), BLOCKS), step) * step
    size = 4 if INTERPRET else x.element_size()  # the interpreter keeps rounded results in float32
    each = per_program * BLOCKS * size
    return Parts(workspace(group, x.device, buffers * each), per_program, each)


def aligned(x: Tensor) -> Tensor:
    """x, contiguous, at a multiple of 16 bytes."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else torch.empty_like(x).copy_(x)
