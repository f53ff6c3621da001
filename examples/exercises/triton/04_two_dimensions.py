"""Exercise triton/04_two_dimensions: a block of rows and columns.

out[n, m] = x[m, n]. A program moves a tile of BLOCK x BLOCK elements. A column of offsets [BLOCK, 1] and a row of
offsets [1, BLOCK] make a tile of pointers [BLOCK, BLOCK].
"""

import torch
import triton
import triton.language as tl

BLOCK = 32


@triton.jit
def transpose_kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    offs_m = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]  # [BLOCK, 1]
    offs_n = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]  # [1, BLOCK]
    mask = (offs_m < M) & (offs_n < N)
    tile = tl.load(x_ptr + offs_m * N + offs_n, mask=mask)
    # TODO: store `tile` so that its element (m, n) goes to row n and column m of out, whose rows have M elements.
    # END


def transpose(x):
    M, N = x.shape
    out = torch.empty((N, M), dtype=x.dtype, device=x.device)
    transpose_kernel[(triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))](x, out, M, N, BLOCK=BLOCK)
    return out
