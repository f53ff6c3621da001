"""A residual connection and root mean square normalization in Triton: the sum of a row is normed before it leaves the
registers."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.rows import blocks
from triton_kernels._runtime.contract import check_norm_pair
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True

Matrix = Float[Tensor, "M N"]


@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, r_ptr, M, N, stride_xm, stride_xn, stride_rm, stride_rn, stride_w, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M whole rows, [BLOCK_M, BLOCK_N], which it reads once."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    wide_n = offs_n.to(tl.int64)
    x = tl.load(x_ptr + offs_m * stride_xm + wide_n * stride_xn, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + offs_m * stride_rm + wide_n * stride_rn, mask=mask, other=0.0).to(tl.float32)
    r = x + residual
    tl.store(r_ptr + offs_m * N + offs_n, r, mask=mask)
    scale = tl.rsqrt(tl.sum(r * r, 1) / N + eps)[:, None]
    weight = tl.load(weight_ptr + wide_n * stride_w, mask=offs_n < N, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs_m * N + offs_n, r * scale * weight, mask=mask)


@triton.jit
def long_add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, r_ptr, N, stride_xm, stride_xn, stride_rm, stride_rn, stride_w, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one row in blocks of BLOCK_N. It reads the operands twice, the second time from the L2
    cache."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    residual_ptr += row * stride_rm
    y_ptr += row * N
    r_ptr += row * N
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    squares = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        mask = offs < N
        x = tl.load(x_ptr + offs * stride_xn, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        residual = tl.load(residual_ptr + offs * stride_rn, mask=mask, other=0.0, eviction_policy="evict_last")
        r = x + residual.to(tl.float32)
        squares += r * r
    scale = tl.rsqrt(tl.sum(squares, 0) / N + eps)
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        mask = offs < N
        x = tl.load(x_ptr + offs * stride_xn, mask=mask, eviction_policy="evict_first").to(tl.float32)
        residual = tl.load(residual_ptr + offs * stride_rn, mask=mask, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + offs * stride_w, mask=mask, eviction_policy="evict_last").to(tl.float32)
        r = x + residual
        tl.store(r_ptr + offs, r, mask=mask, eviction_policy="evict_first")
        tl.store(y_ptr + offs, r * scale * weight, mask=mask, eviction_policy="evict_first")


@kept
def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[Tensor, "N"], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps).

    Shapes: x and residual (M, N), weight (N,), any strides. The outputs are contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once. y is computed from the sum before its rounding.
    Tail: columns beyond N are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    M, N = x.shape
    y, r = (empty_output((M, N), x.dtype, x.device) for _ in range(2))
    if y.numel() > 0:
        block = blocks(N)
        strides = (*x.stride(), *residual.stride(), weight.stride(0))
        with device_of(x):
            if block.holds_row:
                launch(
                    add_rms_norm_kernel, block.grid(M),
                    x, residual, weight, y, r, M, N, *strides, eps, block.rows, block.columns, num_warps=block.warps,
                )  # fmt: skip
            else:
                launch(
                    long_add_rms_norm_kernel, (M,),
                    x, residual, weight, y, r, N, *strides, eps, block.columns, num_warps=block.warps,
                )  # fmt: skip
    return finished_output(y, x.dtype), finished_output(r, x.dtype)
