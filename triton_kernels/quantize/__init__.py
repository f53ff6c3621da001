"""Codes of 8 bits with a scale for each group in Triton: one program keeps whole groups in registers."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Num
from torch import Tensor

from triton_kernels._common.codes import check_float8, code_of, magnitudes_of, scale_of, store_tile, tile
from triton_kernels._runtime.contract import LARGEST_CODE, check_quantize
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True


@triton.jit
def quantize_kernel(
    x_ptr, codes_ptr, scales_ptr, M, N, stride_xm, stride_xn,
    LARGEST: tl.constexpr, WHOLE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one tile, [BLOCK_M, BLOCK_N]: one group (WHOLE), or a group in each of its rows."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    rows = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_m, offs_n = rows[:, None], tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n * stride_xn, mask=mask, other=0.0).to(tl.float32)
    store_tile(x, codes_ptr, scales_ptr, rows, offs_n, tile_n, tiles_n, M, N, LARGEST, WHOLE)


@triton.jit
def long_rows_kernel(
    x_ptr, codes_ptr, scales_ptr, N, stride_xm, stride_xn, LARGEST: tl.constexpr, BLOCK_N: tl.constexpr
):
    """One program computes one row in blocks of BLOCK_N. It reads the row twice, the second time from the L2 cache."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    codes_ptr += row * N
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    sizes = tl.zeros((BLOCK_N,), tl.int32)
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        x = tl.load(x_ptr + offs * stride_xn, mask=offs < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
        sizes = tl.maximum(sizes, magnitudes_of(x))
    scale = scale_of(tl.max(sizes, 0), LARGEST)
    tl.store(scales_ptr + row, scale)
    inverse = 1.0 / scale
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        x = tl.load(x_ptr + offs * stride_xn, mask=offs < N, eviction_policy="evict_first").to(tl.float32)
        tl.store(codes_ptr + offs, code_of(x, inverse, LARGEST), mask=offs < N, eviction_policy="evict_first")


@kept
def quantize(
    x: Float[Tensor, "M N"], *, group: str = "row", to: str = "float8_e4m3fn"
) -> tuple[Num[Tensor, "M N"], Float[Tensor, "G_M G_N"]]:
    """(codes, scales): scale = max |x| / 448 (int8: 127) of a group, at least 2^-126; code = x / scale, rounded.

    Shapes: x (M, N), any strides; the results are contiguous. A group is a row, 128 columns of it, or 128 x 128.
    Dtypes: float32, float16, bfloat16; float32 inside. A quotient is a product with the reciprocal of the scale. NaN
    becomes 0 in int8.
    Tail: elements beyond M and N count as 0. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices, groups or codes; NotImplementedError for float8 on a GPU
    before compute capability 8.9.
    """
    rows, columns = check_quantize(x, group=group, to=to)
    check_float8("quantize", x, to)
    (M, N), kind = x.shape, getattr(torch, to)
    codes = empty_output((M, N), kind, x.device)
    scales = torch.empty((triton.cdiv(M, rows), triton.cdiv(N, columns)), dtype=torch.float32, device=x.device)
    if codes.numel() > 0:
        of = tile(rows, columns)
        operands = (x, codes, scales)
        with device_of(x):
            if of.holds_row:
                launch(
                    quantize_kernel, (of.grid(M)[0] * triton.cdiv(N, of.columns),),
                    *operands, M, N, *x.stride(), LARGEST_CODE[to], rows > 1, of.rows, of.columns,
                    num_warps=of.warps,
                )  # fmt: skip
            else:
                launch(
                    long_rows_kernel, (M,),
                    *operands, N, *x.stride(), LARGEST_CODE[to], of.columns, num_warps=of.warps,
                )  # fmt: skip
    return finished_output(codes, kind), scales
