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
"""Programs of every call. A program meets the one of its number on each other rank, so all calls have this number."""
BLOCK = 2**15 if INTERPRET else 16384  # elements that a program moves at a time
FLAGS = tl.constexpr(MAX_RANKS)
WORDS = tl.constexpr(MAX_BLOCKS * MAX_RANKS)
MEETINGS = tl.constexpr(4)  # most meetings of a call
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
def half_of(calls, half):
    """The first byte of the half of the data that a call uses, by the number of calls before it."""
    return (calls & 1).to(tl.int64) * half


@triton.jit
def meet(addresses_ptr, rank, calls, index, RANKS: tl.constexpr):
    """Waits for this program of every rank: what they wrote before is then visible. index: from 1 on in each call.

    A flag has the number of the last meeting to which a rank has come, which grows from call to call.
    """
    number = calls * MEETINGS + index
    peers = tl.arange(0, FLAGS)
    present = peers < RANKS
    flags = tl.program_id(0) * FLAGS
    theirs = tl.load(addresses_ptr + peers, mask=present, other=0).to(tl.pointer_type(tl.int32)) + flags + rank
    tl.debug_barrier()  # the flags are set after the writes of all threads
    tl.atomic_xchg(theirs, number, mask=present, sem="release", scope="sys")
    own = memory_of(addresses_ptr, rank) + flags + peers
    behind = 1
    while behind > 0:
        numbers = tl.atomic_add(own, 0, mask=present, sem="acquire", scope="sys")
        behind = tl.max(tl.where(present, number - numbers, 0))  # a peer may have come to the next meeting
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
