"""Exercise triton/08_atomics: programs add to one number.

out[0] = sum of all elements. Programs run in any order, many at a time, so that each adds by an atomic operation.
"""

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def total_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    # TODO: add the sum of x to out[0]: tl.atomic_add(pointer, value).
    tl.atomic_add(out_ptr, tl.sum(x, axis=0))
    # END


def total(x):
    out = torch.zeros(1, dtype=x.dtype, device=x.device)
    N = x.numel()
    total_kernel[(triton.cdiv(N, BLOCK),)](x, out, N, BLOCK=BLOCK)
    return out
