"""Codes of 8 bits, float8_e4m3fn or int8, with one scale for each group of numbers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._common.rows import Blocks, blocks
from triton_kernels._runtime.contract import LEAST_SCALE
from triton_kernels._runtime.interpreter import INTERPRET

LEAST = tl.constexpr(LEAST_SCALE)
MAGIC = tl.constexpr(1.5 * 2**23)  # float32 numbers near it are integers: adding it rounds to one


@triton.jit
def magnitudes_of(x):
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
def store_tile(
    x, codes_ptr, scales_ptr, rows, offs_n, tile_n, tiles_n, M, N, LARGEST: tl.constexpr, WHOLE: tl.constexpr
):
    """Stores the codes and scales of a tile of float32 numbers, which are zeros beyond M and N.

    WHOLE: the tile is one group; otherwise each row is one.
    """
    offs_m = rows[:, None]
    mask = (offs_m < M) & (offs_n < N)
    sizes = tl.max(magnitudes_of(x), 1)
    if WHOLE:
        scale = scale_of(tl.max(sizes, 0), LARGEST)
        tl.store(scales_ptr + tl.program_id(0), scale)
        codes = code_of(x, 1.0 / scale, LARGEST)
    else:
        scale = scale_of(sizes, LARGEST)
        tl.store(scales_ptr + rows * tiles_n + tile_n, scale, mask=rows < M)
        codes = code_of(x, (1.0 / scale)[:, None], LARGEST)
    tl.store(codes_ptr + offs_m * N + offs_n, codes, mask=mask)


def tile(rows: int, columns: int) -> Blocks:
    """The tile of a program for groups of this size: one group if it has several rows, else the tile of `blocks`."""
    if rows > 1:
        return Blocks(rows, columns, 8, True)  # 64 numbers in registers of each thread
    return blocks(columns)


def check_float8(operation: str, x: Tensor, to: str = "float8_e4m3fn") -> None:
    """Raises NotImplementedError on a GPU without conversions to float8."""
    if to != "int8" and x.is_cuda and not INTERPRET and torch.cuda.get_device_capability(x.device) < (8, 9):
        raise NotImplementedError(f"{operation}: float8 needs a GPU of compute capability 8.9 or newer")
