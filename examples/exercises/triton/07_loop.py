"""Exercise triton/07_loop: a row that is longer than a block.

out[m] = sum of row m. A program goes over its row in blocks of BLOCK elements. It adds block to block, element by
element, and reduces once at the end.
"""

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    m = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)  # [BLOCK]
        # TODO: add the elements of row m at `offs` to acc, those that exist.
        # END
    tl.store(out_ptr + m, tl.sum(acc, axis=0))


def row_sum(x):
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    row_sum_kernel[(M,)](x, out, N, BLOCK=BLOCK)
    return out
