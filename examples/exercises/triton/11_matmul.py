"""Exercise triton/11_matmul: a tile of a product.

out = a b, row-major. A program computes a tile [BLOCK, BLOCK] of out, in steps of BLOCK along K.
"""

import torch
import triton
import triton.language as tl

BLOCK = 32


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, M, N, K, BLOCK: tl.constexpr):
    offs_m = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]  # [BLOCK, 1]
    offs_n = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]  # [1, BLOCK]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        offs_k = start + tl.arange(0, BLOCK)
        # TODO: load the tile of a at rows offs_m and columns offs_k, and that of b at rows offs_k and columns offs_n,
        # zeros beyond the ends. Add their product: tl.dot(a, b, acc, input_precision="ieee") is a b + acc.
        # offs_k[None, :] is a row of offsets, and offs_k[:, None] a column.
        # END
    tl.store(out_ptr + offs_m * N + offs_n, acc, mask=(offs_m < M) & (offs_n < N))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    matmul_kernel[(triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))](a, b, out, M, N, K, BLOCK=BLOCK)
    return out
