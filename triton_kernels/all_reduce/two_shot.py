"""The sum over all ranks in two steps, in Triton: every rank adds one share, then sends its sums to all others.

A rank stores 2 (ranks - 1) / ranks N elements to the others, where in the plain implementation it reads (ranks - 1) N.
"""

import torch.distributed as dist
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_all_reduce
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, launch
from triton_kernels.all_reduce._exchange import (
    BLOCK,
    BLOCKS,
    WORDS,
    aligned,
    data_of,
    half_of,
    meet,
    memory_of,
    parts_of,
)

DETERMINISTIC = True


@triton.jit
def two_shot_kernel(
    x_ptr, out_ptr, addresses_ptr, N, rank, per_program, half, buffer_bytes, RANKS: tl.constexpr, BLOCK: tl.constexpr
):
    """One program cuts its part into a share for each rank, and sends each rank its share. Once the same program of
    every rank has sent, it adds the shares that it got and sends their sum to all ranks. Then it copies all sums.

    Every rank begins with itself and the rank after it, so that no rank receives from all others at once.
    Calls use the halves of the memory in turns; each half has a buffer of shares and one of sums.
    """
    calls_ptr = memory_of(addresses_ptr, rank) + WORDS + tl.program_id(0)
    calls = tl.load(calls_ptr)
    shares = half_of(calls, half)
    sums = shares + buffer_bytes
    pid, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    begin = pid * per_program
    share = tl.multiple_of(per_program // RANKS, 16)
    for step in tl.static_range(RANKS):
        to = (rank + step) % RANKS
        theirs = data_of(addresses_ptr, to, shares, x_ptr.dtype.element_ty) + (rank * programs + pid) * share
        given = begin + to * share
        for first in range(0, share, BLOCK):
            offs = first + tl.arange(0, BLOCK)
            mask = (offs < share) & (given + offs < N)
            tl.store(theirs + offs, tl.load(x_ptr + given + offs, mask=mask), mask=mask)
    meet(addresses_ptr, rank, calls, 1, RANKS)
    mine = begin + rank * share
    for first in range(0, share, BLOCK):
        offs = first + tl.arange(0, BLOCK)
        mask = (offs < share) & (mine + offs < N)
        acc = tl.zeros((BLOCK,), tl.float32)
        for peer in tl.static_range(RANKS):
            sent = data_of(addresses_ptr, rank, shares, x_ptr.dtype.element_ty) + (peer * programs + pid) * share
            acc += tl.load(sent + offs, mask=mask, other=0.0).to(tl.float32)
        for step in tl.static_range(RANKS):
            theirs = data_of(addresses_ptr, (rank + step) % RANKS, sums, out_ptr.dtype.element_ty)
            tl.store(theirs + mine + offs, acc.to(out_ptr.dtype.element_ty), mask=mask)
    meet(addresses_ptr, rank, calls, 2, RANKS)
    found = data_of(addresses_ptr, rank, sums, out_ptr.dtype.element_ty)
    for first in range(0, per_program, BLOCK):
        offs = first + tl.arange(0, BLOCK)
        mask = (offs < per_program) & (begin + offs < N)
        tl.store(out_ptr + begin + offs, tl.load(found + begin + offs, mask=mask), mask=mask)
    tl.store(calls_ptr, calls + 1)


def all_reduce(x: Float[Tensor, "N"], *, group: dist.ProcessGroup) -> Float[Tensor, "N"]:
    """The sum of x over the ranks of `group`, on every rank.

    Shapes: x (N,), any stride. The output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32, in the order of the ranks, and rounded once.
    Tail: elements beyond the end are masked. Offsets are int64.
    Devices: GPUs that reach each other's memory; in the interpreter, processes that share memory.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for more than 16 ranks.
    Source: two-shot all-reduce of TensorRT-LLM and of PyTorch's symmetric memory.
    """
    check_all_reduce("all_reduce", x)
    (N,) = x.shape
    out = empty_output((N,), x.dtype, x.device)
    if N == 0:
        return finished_output(out, x.dtype)
    parts = parts_of(x, group, buffers=4)
    memory = parts.memory
    with device_of(x):
        launch(
            two_shot_kernel, (BLOCKS,), aligned(x), out, memory.addresses, N, memory.rank,
            parts.per_program, parts.half, parts.bytes, RANKS=memory.ranks, BLOCK=BLOCK, num_warps=16,
        )  # fmt: skip
    return finished_output(out, x.dtype)
