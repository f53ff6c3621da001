"""Layer normalization of the rows of a matrix in Triton. A program holds a row in registers, or reads it in blocks."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.rows import blocks
from triton_kernels._runtime.contract import check_norm
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True


@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_w, stride_b, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M whole rows, [BLOCK_M, BLOCK_N], which it reads once."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n.to(tl.int64) * stride_xn, mask=mask, other=0.0).to(tl.float32)
    mean = (tl.sum(x, 1) / N)[:, None]
    difference = tl.where(offs_n < N, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(difference * difference, 1) / N + eps)[:, None]
    weight = tl.load(weight_ptr + offs_n.to(tl.int64) * stride_w, mask=offs_n < N, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + offs_n.to(tl.int64) * stride_b, mask=offs_n < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs_m * N + offs_n, difference * scale * weight + bias, mask=mask)


@triton.jit
def long_layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, N, stride_xm, stride_xn, stride_w, stride_b, eps, BLOCK_N: tl.constexpr
):  # fmt: skip
    """One program computes one row in blocks of BLOCK_N. It reads the row twice, the second time from the L2 cache.

    mean: mean of the elements so far. squares: sum of their squared differences from it. The mean and the squared
    differences of each block are merged into both.
    """
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    out_ptr += row * N
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    mean = tl.zeros((1,), tl.float32)
    squares = tl.zeros((1,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        x = tl.load(x_ptr + offs * stride_xn, mask=offs < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
        count = tl.minimum(N - start, BLOCK_N).to(tl.float32)
        block_mean = tl.sum(x, 0) / count
        difference = tl.where(offs < N, x - block_mean, 0.0)
        apart = block_mean - mean
        share = count / (start + count)
        squares += tl.sum(difference * difference, 0) + apart * apart * (share * start)
        mean += apart * share
    scale = tl.rsqrt(squares / N + eps)
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        x = tl.load(x_ptr + offs * stride_xn, mask=offs < N, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + offs * stride_w, mask=offs < N, eviction_policy="evict_last").to(tl.float32)
        bias = tl.load(bias_ptr + offs * stride_b, mask=offs < N, eviction_policy="evict_last").to(tl.float32)
        tl.store(out_ptr + offs, (x - mean) * scale * weight + bias, mask=offs < N, eviction_policy="evict_first")


@kept
def layer_norm(
    x: Float[Tensor, "M N"], weight: Float[Tensor, "N"], bias: Float[Tensor, "N"], *, eps: float
) -> Float[Tensor, "M N"]:
    """out[i, j] = (x[i, j] - mean_i) / sqrt(variance_i + eps) * weight[j] + bias[j]; the variance is the biased one.

    Shapes: x (M, N), weight and bias (N,), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: columns beyond N are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: T. Chan, G. Golub, R. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
    1979, for rows in blocks.
    """
    check_norm("layer_norm", x, weight=weight, bias=bias)
    M, N = x.shape
    out = empty_output((M, N), x.dtype, x.device)
    if out.numel() > 0:
        block = blocks(N)
        strides = (*x.stride(), weight.stride(0), bias.stride(0))
        with device_of(x):
            if block.holds_row:
                launch(
                    layer_norm_kernel, block.grid(M),
                    x, weight, bias, out, M, N, *strides, eps, block.rows, block.columns, num_warps=block.warps,
                )  # fmt: skip
            else:
                launch(
                    long_layer_norm_kernel, (M,),
                    x, weight, bias, out, N, *strides, eps, block.columns, num_warps=block.warps,
                )  # fmt: skip
    return finished_output(out, x.dtype)
