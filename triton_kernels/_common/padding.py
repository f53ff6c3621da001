"""Copies of matrices, padded with zeros so that rows and columns are multiples of 16 bytes."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._runtime.launch import launch

VECTOR = 8
"""16-bit elements that a thread copies at a time: 16 bytes."""
BLOCK, MOST_COLUMNS = 4096, 256
"""Elements per block, and the largest number of columns per block."""
SIZES = ["R", "C", "rows", "columns"]


@triton.jit
def pad_block(
    block, x_ptr, y_ptr, R, C, stride_r, stride_c, rows, columns,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Copies one block of y [rows, columns] = x [R, C], with zeros beyond x. ALIGN divides the columns of y."""
    columns = columns // ALIGN * ALIGN
    blocks_c = tl.cdiv(columns, BLOCK_C)
    r = block // blocks_c * BLOCK_R + tl.arange(0, BLOCK_R)
    c = block % blocks_c * BLOCK_C + tl.arange(0, BLOCK_C)
    offs = r[:, None].to(tl.int64) * stride_r + c[None, :].to(tl.int64) * stride_c
    x = tl.load(x_ptr + offs, (r[:, None] < R) & (c[None, :] < C), 0)
    tl.store(y_ptr + r[:, None].to(tl.int64) * columns + c[None, :], x, (r[:, None] < rows) & (c[None, :] < columns))


@triton.jit(do_not_specialize=SIZES)
def pad_kernel(
    x_ptr, y_ptr, R, C, stride_r, stride_c, rows, columns,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """One program copies one block."""
    pad_block(tl.program_id(0), x_ptr, y_ptr, R, C, stride_r, stride_c, rows, columns, BLOCK_R, BLOCK_C, ALIGN)


@triton.jit(do_not_specialize=[*SIZES, *(f"{name}_2" for name in SIZES), "blocks"])
def pad_both_kernel(
    x_ptr, y_ptr, R, C, stride_r, stride_c, rows, columns,
    x_ptr_2, y_ptr_2, R_2, C_2, stride_r_2, stride_c_2, rows_2, columns_2, blocks,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Copies two matrices in one launch: programs below `blocks` copy the first, the others copy the second."""
    block = tl.program_id(0)
    if block < blocks:
        pad_block(block, x_ptr, y_ptr, R, C, stride_r, stride_c, rows, columns, BLOCK_R, BLOCK_C, ALIGN)
    else:
        block -= blocks
        pad_block(
            block, x_ptr_2, y_ptr_2, R_2, C_2, stride_r_2, stride_c_2, rows_2, columns_2, BLOCK_R, BLOCK_C, ALIGN
        )  # fmt: skip


def zero_padded(x: Tensor, vector: int = VECTOR) -> Tensor:
    """Returns a copy of x, in the same order of dimensions, with zeros up to multiples of `vector` rows and columns."""
    y, padded = _padded_memory(x, vector)
    copy_matrix(x if y is padded else x.t(), y)
    return padded[: x.shape[0], : x.shape[1]]


def both_zero_padded(a: Tensor, b: Tensor, vector: int = VECTOR) -> tuple[Tensor, Tensor]:
    """`zero_padded` of two matrices of one dtype, by one kernel."""
    found, arguments, blocks = [], [], []
    copies = [_padded_memory(x, vector) for x in (a, b)]
    columns = _columns(max(y.shape[1] for y, _ in copies))
    for x, (y, padded) in zip((a, b), copies, strict=True):
        found.append(padded[: x.shape[0], : x.shape[1]])
        arguments.append(_copied(x if y is padded else x.t(), y))
        blocks.append(_blocks(y, columns))
    launch(
        pad_both_kernel, (sum(blocks),), *arguments[0], *arguments[1], blocks[0],
        BLOCK_R=BLOCK // columns, BLOCK_C=columns, ALIGN=vector, num_warps=4,
    )  # fmt: skip
    return found[0], found[1]


def copy_matrix(x: Tensor, y: Tensor) -> None:
    """Copies x to y (contiguous) and stores zeros where only y has elements. x may be larger than y."""
    vector = 16 // x.element_size()
    align = vector if y.shape[1] % vector == 0 else 1
    columns = _columns(y.shape[1])
    launch(
        pad_kernel, (_blocks(y, columns),), *_copied(x, y),
        BLOCK_R=BLOCK // columns, BLOCK_C=columns, ALIGN=align, num_warps=4,
    )  # fmt: skip


def _padded_memory(x: Tensor, vector: int) -> tuple[Tensor, Tensor]:
    """Allocates memory for x and its padding. Returns it as a contiguous tensor, and viewed in x's dimension order."""
    sizes = [triton.cdiv(size, vector) * vector for size in x.shape]
    transposed = x.stride(0) < x.stride(1)
    y = torch.empty(sizes[::-1] if transposed else sizes, dtype=x.dtype, device=x.device)
    return (y, y.t()) if transposed else (y, y)


def _copied(x: Tensor, y: Tensor) -> tuple[Any, ...]:
    """Arguments of pad_block. Elements are copied as integers, because zero has the same bits in all types."""
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[x.element_size()]
    return x.view(bits), y.view(bits), *x.shape, *x.stride(), *y.shape


def _columns(columns: int) -> int:
    """Columns per block: at most those of the matrix, so that all threads have work in narrow matrices."""
    return max(16, min(MOST_COLUMNS, triton.next_power_of_2(columns)))


def _blocks(y: Tensor, columns: int) -> int:
    return triton.cdiv(y.shape[0], BLOCK // columns) * triton.cdiv(y.shape[1], columns)
