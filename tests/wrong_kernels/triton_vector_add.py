"""c = a + b in Triton, and three ways to miss elements."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "last_element_masked": Wrong("the mask ends one element early", "not finite", (1000,)),
    "last_block_not_launched": Wrong("the grid is N // BLOCK, rounded down", "not finite", (1000,)),
    "strides_ignored": Wrong("inputs are read as if they were contiguous", "not finite", (1025,), inputs="strided"),
}
BLOCK = 256


@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, N, stride_a, stride_b, MISTAKE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N - 1 if MISTAKE == "last_element_masked" else offs < N
    a = tl.load(a_ptr + offs * stride_a, mask=mask)
    b = tl.load(b_ptr + offs * stride_b, mask=mask)
    tl.store(out_ptr + offs, a + b, mask=mask)


def make(mistake: str):
    def vector_add(a: Tensor, b: Tensor) -> Tensor:
        (N,) = a.shape
        out = torch.empty(N, dtype=a.dtype, device=a.device)
        blocks = N // BLOCK if mistake == "last_block_not_launched" else triton.cdiv(N, BLOCK)
        strides = (1, 1) if mistake == "strides_ignored" else (a.stride(0), b.stride(0))
        kernel[(blocks,)](a, b, out, N, *strides, mistake, BLOCK)
        return out

    return vector_add
