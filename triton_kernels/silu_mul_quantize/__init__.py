"""The product of a gated linear unit as codes of 8 bits in Triton: quantizes the product without storing it."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Num
from torch import Tensor

from triton_kernels._common.activation import gate_of
from triton_kernels._common.codes import check_float8, code_of, magnitudes_of, scale_of, store_tile, tile
from triton_kernels._runtime.contract import LARGEST_CODE, check_codes, check_gated
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True


@triton.jit
def product(a_ptr, b_ptr, mask):
    """silu(a) b in float32, 0 where masked. The sigmoid is that of float32: the product is not rounded to 16 bits."""
    a = tl.load(a_ptr, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr, mask=mask, other=0.0).to(tl.float32)
    return a * gate_of(a, "silu") * b


@triton.jit
def silu_mul_quantize_kernel(
    a_ptr, b_ptr, codes_ptr, scales_ptr, M, N, stride_am, stride_an, stride_bm, stride_bn,
    LARGEST: tl.constexpr, WHOLE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one tile, [BLOCK_M, BLOCK_N]: one group (WHOLE), or a group in each of its rows."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    rows = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_m, offs_n = rows[:, None], tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    y = product(a_ptr + offs_m * stride_am + offs_n * stride_an, b_ptr + offs_m * stride_bm + offs_n * stride_bn, mask)
    store_tile(y, codes_ptr, scales_ptr, rows, offs_n, tile_n, tiles_n, M, N, LARGEST, WHOLE)


@triton.jit
def long_rows_kernel(
    a_ptr, b_ptr, codes_ptr, scales_ptr, N, stride_am, stride_an, stride_bm, stride_bn,
    LARGEST: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one row in blocks of BLOCK_N. It reads the row twice, the second time from the L2 cache."""
    row = tl.program_id(0).to(tl.int64)
    a_ptr += row * stride_am
    b_ptr += row * stride_bm
    codes_ptr += row * N
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    sizes = tl.zeros((BLOCK_N,), tl.int32)
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        sizes = tl.maximum(sizes, magnitudes_of(product(a_ptr + offs * stride_an, b_ptr + offs * stride_bn, offs < N)))
    scale = scale_of(tl.max(sizes, 0), LARGEST)
    tl.store(scales_ptr + row, scale)
    inverse = 1.0 / scale
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        y = product(a_ptr + offs * stride_an, b_ptr + offs * stride_bn, offs < N)
        tl.store(codes_ptr + offs, code_of(y, inverse, LARGEST), mask=offs < N)


@kept
def silu_mul_quantize(
    a: Float[Tensor, "M N"], b: Float[Tensor, "M N"], *, group: str = "row", to: str = "float8_e4m3fn"
) -> tuple[Num[Tensor, "M N"], Float[Tensor, "G_M G_N"]]:
    """(codes, scales) of y = silu(a) b: scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale, rounded.

    Shapes: a and b (M, N), any strides; the results are contiguous. A group is a row, 128 columns of it, or 128 x 128.
    Dtypes: float32, float16, bfloat16; float32 inside. A quotient is a product with the reciprocal of the scale. NaN
    becomes 0 in int8.
    Tail: elements beyond M and N count as 0. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices, groups or codes; NotImplementedError for float8 on a GPU
    before compute capability 8.9.
    """
    M, N = check_gated("silu_mul_quantize", a, b, activation="silu")
    rows, columns = check_codes("silu_mul_quantize", N, group=group, to=to)
    check_float8("silu_mul_quantize", a, to)
    kind = getattr(torch, to)
    codes = empty_output((M, N), kind, a.device)
    scales = torch.empty((triton.cdiv(M, rows), triton.cdiv(N, columns)), dtype=torch.float32, device=a.device)
    if codes.numel() > 0:
        of, operands, strides = tile(rows, columns), (a, b, codes, scales), (*a.stride(), *b.stride())
        with device_of(a):
            if of.holds_row:
                launch(
                    silu_mul_quantize_kernel, (of.grid(M)[0] * triton.cdiv(N, of.columns),),
                    *operands, M, N, *strides, LARGEST_CODE[to], rows > 1, of.rows, of.columns, num_warps=of.warps,
                )  # fmt: skip
            else:
                launch(
                    long_rows_kernel, (M,),
                    *operands, N, *strides, LARGEST_CODE[to], of.columns, num_warps=of.warps,
                )  # fmt: skip
    return finished_output(codes, kind), scales
