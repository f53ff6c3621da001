"""Exercise triton/05_row_sum: a reduction of a block.

out[m] = sum of row m. A program loads a whole row; a block has a power of two of elements, so that some are masked.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    m = tl.program_id(0)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    # TODO: load row m, whose first element is at m * N, and store its sum to out at m. Masked elements get the value of
    # `other=`, and must not change the sum. tl.sum(block, axis=0) adds a block.
    row = tl.load(x_ptr + m * N + offs, mask=offs < N, other=0.0)
    tl.store(out_ptr + m, tl.sum(row, axis=0))
    # END


def row_sum(x):
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    row_sum_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out
