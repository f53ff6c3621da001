"""The sum of what the ranks sent to this one."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.interpreter import INTERPRET
from triton_kernels._runtime.launch import device_of, launch

BLOCK = 2**17 if INTERPRET else 2048  # elements of a program


@triton.jit
def add_parts_kernel(parts_ptr, out_ptr, n, stride, RANKS: tl.constexpr, BLOCK: tl.constexpr):
    """One program adds a block of the parts of all ranks, in float32 and in their order."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for rank in tl.static_range(RANKS):
        theirs = parts_ptr + tl.full((), rank, tl.int64) * stride
        acc += tl.load(theirs + offs, mask=offs < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs, acc, mask=offs < n)


def add_parts(parts: Float[Tensor, "ranks ..."], out: Float[Tensor, "..."]) -> None:
    """out = the sum of the parts, each contiguous, in float32 and in their order, rounded once."""
    n = out.numel()
    if n > 0:
        with device_of(out):
            launch(
                add_parts_kernel, (triton.cdiv(n, BLOCK),), parts, out, n, parts.stride(0),
                RANKS=parts.shape[0], BLOCK=BLOCK,
            )  # fmt: skip
