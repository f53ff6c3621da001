"""Rows over their root mean square as codes of 8 bits in Triton: a kernel for the rows' factors, one for the codes."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Num
from torch import Tensor

from triton_kernels._common.codes import check_float8, code_of, magnitudes_of, scale_of, store_tile, tile
from triton_kernels._common.rows import blocks
from triton_kernels._runtime.contract import LARGEST_CODE, check_codes, check_norm
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True


@triton.jit
def factors_kernel(x_ptr, factors_ptr, M, N, stride_xm, stride_xn, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """One program computes 1 / sqrt(mean of x^2 + eps) of BLOCK_M rows, which it reads in blocks of BLOCK_N columns."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    squares = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_m, offs_n = rows[:, None], (start + tl.arange(0, BLOCK_N).to(tl.int64))[None, :]
        mask = (offs_m < M) & (offs_n < N)
        x = tl.load(x_ptr + offs_m * stride_xm + offs_n * stride_xn, mask=mask, other=0.0).to(tl.float32)
        squares += x * x
    tl.store(factors_ptr + rows, tl.rsqrt(tl.sum(squares, 1) / N + eps), mask=rows < M)


@triton.jit
def normed(x_ptr, weight_ptr, factor, mask, mask_n):
    """x factor weight in float32, 0 where masked."""
    x = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)
    return x * factor * tl.load(weight_ptr, mask=mask_n, other=0.0).to(tl.float32)


@triton.jit
def rms_norm_quantize_kernel(
    x_ptr, weight_ptr, factors_ptr, codes_ptr, scales_ptr, M, N, stride_xm, stride_xn, stride_w,
    LARGEST: tl.constexpr, WHOLE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one tile, [BLOCK_M, BLOCK_N]: one group (WHOLE), or a group in each of its rows."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    rows = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_m, offs_n = rows[:, None], tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    factor = tl.load(factors_ptr + offs_m, mask=offs_m < M, other=0.0)
    y = normed(
        x_ptr + offs_m * stride_xm + offs_n * stride_xn, weight_ptr + offs_n * stride_w, factor, mask, offs_n < N
    )
    y = tl.where(mask, y, 0.0)  # a masked 0 times an infinite weight or factor is NaN
    store_tile(y, codes_ptr, scales_ptr, rows, offs_n, tile_n, tiles_n, M, N, LARGEST, WHOLE)


@triton.jit
def long_rows_kernel(
    x_ptr, weight_ptr, factors_ptr, codes_ptr, scales_ptr, N, stride_xm, stride_xn, stride_w,
    LARGEST: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one row in blocks of BLOCK_N. It reads the row twice, the second time from the L2 cache."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    codes_ptr += row * N
    factor = tl.load(factors_ptr + row)
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    sizes = tl.zeros((BLOCK_N,), tl.int32)
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        y = normed(x_ptr + offs * stride_xn, weight_ptr + offs * stride_w, factor, offs < N, offs < N)
        sizes = tl.maximum(sizes, magnitudes_of(tl.where(offs < N, y, 0.0)))
    scale = scale_of(tl.max(sizes, 0), LARGEST)
    tl.store(scales_ptr + row, scale)
    inverse = 1.0 / scale
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        y = normed(x_ptr + offs * stride_xn, weight_ptr + offs * stride_w, factor, offs < N, offs < N)
        tl.store(codes_ptr + offs, code_of(y, inverse, LARGEST), mask=offs < N)


@kept
def rms_norm_quantize(
    x: Float[Tensor, "M N"],
    weight: Float[Tensor, "N"],
    *,
    eps: float,
    group: str = "row",
    to: str = "float8_e4m3fn",
) -> tuple[Num[Tensor, "M N"], Float[Tensor, "G_M G_N"]]:
    """(codes, scales) of y = rms_norm(x, weight): scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale.

    Shapes: x (M, N), weight (N,), any strides; the results are contiguous. A group is a row, 128 columns of it, or
    128 x 128.
    Dtypes: float32, float16, bfloat16; float32 inside. A quotient is a product with the reciprocal of the scale. NaN
    becomes 0 in int8.
    Tail: elements beyond M and N count as 0. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices, groups or codes; NotImplementedError for float8 on a GPU
    before compute capability 8.9.
    """
    M, N = check_norm("rms_norm_quantize", x, weight=weight)
    rows, columns = check_codes("rms_norm_quantize", N, group=group, to=to)
    check_float8("rms_norm_quantize", x, to)
    kind = getattr(torch, to)
    codes = empty_output((M, N), kind, x.device)
    scales = torch.empty((triton.cdiv(M, rows), triton.cdiv(N, columns)), dtype=torch.float32, device=x.device)
    if codes.numel() > 0:
        factors = torch.empty(M, dtype=torch.float32, device=x.device)
        of, row = tile(rows, columns), blocks(N)
        operands, strides = (x, weight, factors, codes, scales), (*x.stride(), weight.stride(0))
        with device_of(x):
            launch(
                factors_kernel, row.grid(M),
                x, factors, M, N, *x.stride(), eps, row.rows, row.columns, num_warps=row.warps,
            )  # fmt: skip
            if of.holds_row:
                launch(
                    rms_norm_quantize_kernel, (of.grid(M)[0] * triton.cdiv(N, of.columns),),
                    *operands, M, N, *strides, LARGEST_CODE[to], rows > 1, of.rows, of.columns, num_warps=of.warps,
                )  # fmt: skip
            else:
                launch(
                    long_rows_kernel, (M,),
                    *operands, N, *strides, LARGEST_CODE[to], of.columns, num_warps=of.warps,
                )  # fmt: skip
    return finished_output(codes, kind), scales
