"""Codes of 8 bits with a scale for each group in Triton: one program keeps whole groups in registers."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Num
from torch import Tensor

from triton_kernels._common.rows import Blocks, blocks
from triton_kernels._runtime.contract import LARGEST_CODE, LEAST_SCALE, check_quantize
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
LEAST = tl.constexpr(LEAST_SCALE)
MAGIC = tl.constexpr(1.5 * 2**23)  # a float32 whose neighbours are integers: a sum with it is rounded to one


@triton.jit
def sizes_of(x):
    """|x| as an integer: these order as the numbers do, with NaN above infinity. tl.max on floats loses a NaN."""
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def scale_of(size, LARGEST: tl.constexpr):
    """The scale of a group whose largest |x| is `size`, as bits."""
    scale = size.to(tl.float32, bitcast=True) / LARGEST
    return tl.where(scale < LEAST, LEAST, scale)  # keeps NaN


@triton.jit
def code_of(x, inverse, LARGEST: tl.constexpr):
    """The code as a float32. The store rounds it to float8; an int8 is rounded here, to nearest even, NaN to 0."""
    quotient = x * inverse
    if LARGEST == 127.0:
        return tl.where(quotient == quotient, quotient + MAGIC - MAGIC, 0.0)
    else:
        return quotient


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
    sizes = tl.max(sizes_of(x), 1)
    if WHOLE:
        scale = scale_of(tl.max(sizes, 0), LARGEST)
        tl.store(scales_ptr + tl.program_id(0), scale)
        codes = code_of(x, 1.0 / scale, LARGEST)
    else:
        scale = scale_of(sizes, LARGEST)
        tl.store(scales_ptr + rows * tiles_n + tile_n, scale, mask=rows < M)
        codes = code_of(x, (1.0 / scale)[:, None], LARGEST)
    tl.store(codes_ptr + offs_m * N + offs_n, codes, mask=mask)


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
        sizes = tl.maximum(sizes, sizes_of(x))
    scale = scale_of(tl.max(sizes, 0), LARGEST)
    tl.store(scales_ptr + row, scale)
    inverse = 1.0 / scale
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        x = tl.load(x_ptr + offs * stride_xn, mask=offs < N, eviction_policy="evict_first").to(tl.float32)
        tl.store(codes_ptr + offs, code_of(x, inverse, LARGEST), mask=offs < N, eviction_policy="evict_first")


def tile(rows: int, columns: int) -> Blocks:
    """The tile of a program for groups of this size: one group of several rows, or the rows that `blocks` takes."""
    if rows > 1:
        return Blocks(rows, columns, 8, True)  # 64 numbers in registers of each thread
    return blocks(columns)


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
    if to != "int8" and x.is_cuda and not INTERPRET and torch.cuda.get_device_capability(x.device) < (8, 9):
        raise NotImplementedError("quantize: float8 needs a GPU of compute capability 8.9 or newer")
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
