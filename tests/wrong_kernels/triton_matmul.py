"""C = A B in Triton: programs that take several tiles in turn, with mistakes in the tail of K, strides and sums."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "k_tail_dropped": Wrong("the loop over K runs K // BLOCK times", "value", (64, 64, 100)),
    "k_tail_clamped": Wrong("beyond K the last column and row are read again instead of zeros", "value", (64, 64, 100)),
    "strides_of_b_swapped": Wrong("B is read transposed", "value", (48, 48, 48)),
    "sums_in_float16": Wrong("the accumulator is float16", "value", (64, 64, 256), "float16"),
    "tf32_for_ieee": Wrong("factors are rounded to tf32 where ieee was asked for", "value", (64, 64, 256)),
    "accumulator_not_reset": Wrong("a program's next tile goes on with the sums of the last", "value", (64, 96, 32)),
}
BLOCK = 32
PROGRAMS = 3


@triton.jit
def round_to_tf32(x):
    return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    MISTAKE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK) * tiles_n, tl.num_programs(0)):
        offs_m = (tile // tiles_n * BLOCK + tl.arange(0, BLOCK))[:, None]
        offs_n = (tile % tiles_n * BLOCK + tl.arange(0, BLOCK))[None, :]
        if MISTAKE != "accumulator_not_reset":
            acc = tl.zeros((BLOCK, BLOCK), tl.float32)
        steps = K // BLOCK if MISTAKE == "k_tail_dropped" else tl.cdiv(K, BLOCK)
        for step in range(0, steps):
            offs_k = step * BLOCK + tl.arange(0, BLOCK)
            inside = offs_k < K
            if MISTAKE == "k_tail_clamped":
                offs_k = tl.minimum(offs_k, K - 1)
                inside = offs_k < K
            a = tl.load(
                a_ptr + offs_m * stride_am + offs_k[None, :] * stride_ak, mask=(offs_m < M) & inside[None, :], other=0.0
            )
            b = tl.load(
                b_ptr + offs_k[:, None] * stride_bk + offs_n * stride_bn, mask=inside[:, None] & (offs_n < N), other=0.0
            )
            if MISTAKE == "tf32_for_ieee":
                a = round_to_tf32(a)
                b = round_to_tf32(b)
            acc += tl.dot(a, b, input_precision="ieee")
            if MISTAKE == "sums_in_float16":
                acc = acc.to(tl.float16).to(tl.float32)
        tl.store(c_ptr + offs_m * N + offs_n, acc, mask=(offs_m < M) & (offs_n < N))


def make(mistake: str):
    def matmul(a: Tensor, b: Tensor, *, precision: str = "ieee") -> Tensor:
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty(M, N, dtype=a.dtype, device=a.device)
        b_strides = b.stride()[::-1] if mistake == "strides_of_b_swapped" else b.stride()
        kernel[(PROGRAMS,)](a, b, c, M, N, K, *a.stride(), *b_strides, mistake, BLOCK)
        return c

    return matmul
