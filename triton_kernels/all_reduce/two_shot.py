"""The sum over all ranks in two steps, in Triton: every rank adds one share, then reads the shares of all others.

A rank reads 2 (ranks - 1) / ranks N elements of the others, where the plain line reads (ranks - 1) N.
"""

import torch.distributed as dist
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_all_reduce
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, launch
from triton_kernels.all_reduce._exchange import BLOCK, BLOCKS, WORDS, aligned, data_of, meet, memory_of, parts_of

DETERMINISTIC = True


@triton.jit
def two_shot_kernel(
    x_ptr, out_ptr, addresses_ptr, N, rank, per_program, half, buffer_bytes, RANKS: tl.constexpr, BLOCK: tl.constexpr
):
    """One program copies its part of x to its rank's memory, and adds this rank's share of that part over all ranks,
    as soon as the same program of every rank has copied. Once all have added, it reads the shares of all ranks.

    Calls use the halves of the memory in turns; each has a buffer of copies, and one of sums.
    """
    turn_ptr = memory_of(addresses_ptr, rank) + WORDS + tl.program_id(0)
    turn = tl.load(turn_ptr)
    copies = turn.to(tl.int64) * half
    sums = copies + buffer_bytes
    begin = tl.program_id(0).to(tl.int64) * per_program
    end = tl.minimum(begin + per_program, N)
    share = per_program // RANKS
    own = data_of(addresses_ptr, rank, copies, x_ptr.dtype.element_ty)
    for first in range(begin, end, BLOCK):
        offs = first + tl.arange(0, BLOCK)
        tl.store(own + offs, tl.load(x_ptr + offs, mask=offs < end), mask=offs < end)
    meet(addresses_ptr, rank, RANKS)
    mine = data_of(addresses_ptr, rank, sums, out_ptr.dtype.element_ty)
    last = tl.minimum(begin + (rank + 1) * share, end)
    for first in range(begin + rank * share, last, BLOCK):
        offs = first + tl.arange(0, BLOCK)
        acc = tl.zeros((BLOCK,), tl.float32)
        for peer in tl.static_range(RANKS):
            theirs = data_of(addresses_ptr, peer, copies, x_ptr.dtype.element_ty)
            acc += tl.load(theirs + offs, mask=offs < last, other=0.0).to(tl.float32)
        tl.store(mine + offs, acc.to(out_ptr.dtype.element_ty), mask=offs < last)
    meet(addresses_ptr, rank, RANKS)
    for peer in tl.static_range(RANKS):
        theirs = data_of(addresses_ptr, peer, sums, out_ptr.dtype.element_ty)
        last = tl.minimum(begin + (peer + 1) * share, end)
        for first in range(begin + peer * share, last, BLOCK):
            offs = first + tl.arange(0, BLOCK)
            tl.store(out_ptr + offs, tl.load(theirs + offs, mask=offs < last), mask=offs < last)
    tl.store(turn_ptr, 1 - turn)


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
