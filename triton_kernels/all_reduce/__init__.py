"""The sum over all ranks in one step, in Triton: every rank reads the vectors of all others (one-shot)."""

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
def one_shot_kernel(
    x_ptr, out_ptr, addresses_ptr, N, rank, per_program, half, RANKS: tl.constexpr, BLOCK: tl.constexpr
):
    """One program copies its part of x to its rank's memory, waits for the same program of every rank, and adds their
    copies of that part.

    Calls use the halves of the memory in turns. A rank that waits in a call has finished the call before, so no rank
    still reads the half of that one.
    """
    calls_ptr = memory_of(addresses_ptr, rank) + WORDS + tl.program_id(0)
    calls = tl.load(calls_ptr)
    start = half_of(calls, half)
    begin = tl.program_id(0).to(tl.int64) * per_program
    end = tl.minimum(begin + per_program, N)
    own = data_of(addresses_ptr, rank, start, x_ptr.dtype.element_ty)
    for first in range(begin, end, BLOCK):
        offs = first + tl.arange(0, BLOCK)
        tl.store(own + offs, tl.load(x_ptr + offs, mask=offs < end), mask=offs < end)
    meet(addresses_ptr, rank, calls, 1, RANKS)
    for first in range(begin, end, BLOCK):
        offs = first + tl.arange(0, BLOCK)
        acc = tl.zeros((BLOCK,), tl.float32)
        for peer in tl.static_range(RANKS):
            theirs = data_of(addresses_ptr, peer, start, x_ptr.dtype.element_ty)
            acc += tl.load(theirs + offs, mask=offs < end, other=0.0).to(tl.float32)
        tl.store(out_ptr + offs, acc, mask=offs < end)
    tl.store(calls_ptr, calls + 1)


def all_reduce(x: Float[Tensor, "N"], *, group: dist.ProcessGroup) -> Float[Tensor, "N"]:
    """The sum of x over the ranks of `group`, on every rank.

    Each rank reads (ranks - 1) N elements of the others, which suits few ranks or short vectors. two_shot.py reads
    less.

    Shapes: x (N,), any stride. The output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32, in the order of the ranks, and rounded once.
    Tail: elements beyond the end are masked. Offsets are int64.
    Devices: GPUs that reach each other's memory; in the interpreter, processes that share memory.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for more than 16 ranks.
    Source: one-shot all-reduce of TensorRT-LLM and of PyTorch's symmetric memory.
    """
    check_all_reduce("all_reduce", x)
    (N,) = x.shape
    out = empty_output((N,), x.dtype, x.device)
    if N == 0:
        return finished_output(out, x.dtype)
    parts = parts_of(x, group, buffers=2)
    memory = parts.memory
    with device_of(x):
        launch(
            one_shot_kernel, (BLOCKS,), aligned(x), out, memory.addresses, N, memory.rank,
            parts.per_program, parts.half, RANKS=memory.ranks, BLOCK=BLOCK, num_warps=16,
        )  # fmt: skip
    return finished_output(out, x.dtype)
