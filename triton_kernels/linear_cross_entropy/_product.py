"""The products of linear_cross_entropy: the plain matrix multiplication, in one tile, which may add to a sum."""

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand
from triton_kernels._runtime.launch import launch

GROUP_M = 8  # tile rows per group of the tile scheduler


@triton.jit
def product_kernel(
    a_ptr, b_ptr, base_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of base + A B, [BLOCK_M, BLOCK_N], in float32. base may be None."""
    pid_m, pid_n = grouped_tile_any(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    offs, inside = offs_m * N + offs_n, (offs_m < M) & (offs_n < N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if base_ptr is not None:
        acc = tl.load(base_ptr + offs, mask=inside, other=0.0)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + offs_m * stride_am + k[None, :] * stride_ak
        b_ptrs = b_ptr + k[:, None] * stride_bk + offs_n * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < K) & (offs_n < N), other=0.0)
        acc = tl.dot(dot_operand(a), dot_operand(b), acc, input_precision="ieee")
    tl.store(out_ptr + offs, acc, mask=inside)


def multiply(a: Tensor, b: Tensor, out: Tensor, base: Tensor | None = None) -> None:
    """out = base + a b, rounded once to the type of out. base and out are contiguous, base is float32."""
    (M, K), N = a.shape, b.shape[1]
    tile, warps = ((128, 128, 64), 8) if a.element_size() == 2 else ((64, 64, 32), 4)
    tile = (256, 256, 256) if INTERPRET else tile
    grid = (triton.cdiv(M, tile[0]) * triton.cdiv(N, tile[1]),)
    launch(product_kernel, grid, a, b, base, out, M, N, K, *a.stride(), *b.stride(), GROUP_M, *tile, num_warps=warps)
