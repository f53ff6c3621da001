"""Exercise triton/12_order: neighbouring programs share operands.

out = a b. Programs with neighbouring numbers run at the same time. In row-major order 8 of them need one row of tiles
of a and 8 columns of tiles of b. In groups of GROUP rows, column by column within a group, they need about 3 and 3, so
that more of their loads hit the L2 cache.
"""

import torch
import triton
import triton.language as tl

BLOCK, GROUP = 16, 3


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, M, N, K, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    pid, tiles_m, tiles_n = tl.program_id(0), tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    first_row = pid // (GROUP * tiles_n) * GROUP  # of the group
    rows = tl.minimum(tiles_m - first_row, GROUP)  # of the group; the last one may have fewer
    inside = pid % (GROUP * tiles_n)  # number of this program in its group
    # TODO: declare `tile_m` and `tile_n`, the row and the column of this program's tile. Within a group `rows`
    # consecutive programs go down one column; then comes the next column.
    tile_m, tile_n = first_row + inside % rows, inside // rows
    # END
    offs_m = (tile_m * BLOCK + tl.arange(0, BLOCK))[:, None]  # [BLOCK, 1]
    offs_n = (tile_n * BLOCK + tl.arange(0, BLOCK))[None, :]  # [1, BLOCK]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        offs_k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + offs_m * K + offs_k[None, :], mask=(offs_m < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n, mask=(offs_k[:, None] < K) & (offs_n < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(out_ptr + offs_m * N + offs_n, acc, mask=(offs_m < M) & (offs_n < N))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, BLOCK) * triton.cdiv(N, BLOCK),)
    matmul_kernel[grid](a, b, out, M, N, K, BLOCK=BLOCK, GROUP=GROUP)
    return out
