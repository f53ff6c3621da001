"""Exercise triton/01_load: a program computes a block of elements.

out[i] = x[i]. N is a multiple of BLOCK. Program number p has the elements p * BLOCK to p * BLOCK + BLOCK - 1.
"""

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    # TODO: load the elements of x at `offs`, and store them to out at `offs`: tl.load(pointers) and
    # tl.store(pointers, values), where a pointer plus the block of offsets is a block of pointers.
    tl.store(out_ptr + offs, tl.load(x_ptr + offs))
    # END


def copy(x):
    out = torch.empty_like(x)
    copy_kernel[(x.numel() // BLOCK,)](x, out, BLOCK=BLOCK)
    return out
