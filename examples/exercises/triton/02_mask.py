"""Exercise triton/02_mask: the last block is not full.

out[i] = a[i] + b[i], for any N.
"""

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def add_kernel(a_ptr, b_ptr, out_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    # TODO: declare `mask`, true for the offsets below N. Load blocks of a and b and store their sum, all with
    # `mask=mask`: elements beyond the end are neither read nor written.
    # END


def add(a, b):
    out = torch.empty_like(a)
    N = a.numel()
    add_kernel[(triton.cdiv(N, BLOCK),)](a, b, out, N, BLOCK=BLOCK)
    return out
