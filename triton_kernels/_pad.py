"""Copies of matrices whose sizes are no multiples of 16 bytes, with zeros at the ends of rows and columns."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._launch import launch

VECTOR = 8
"""Elements of 16 bits in 16 bytes, which a thread copies at a time."""
LEAST_PRODUCTS = 2**26
"""Products of a matmul for which two copies take less time than copies of single elements in its loop."""


def worth_padding(a: Tensor, M: int, N: int, K: int) -> bool:
    """Whether a matmul whose rows begin at any address is faster with padded copies of its operands."""
    return a.is_cuda and a.element_size() == 2 and min(M, N, K) >= 64 and M * N * K >= LEAST_PRODUCTS


@triton.jit
def pad_kernel(x_ptr, y_ptr, R, C, stride_r, stride_c, rows, columns, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """y [rows, columns] = x [R, C], and zeros beyond. One program copies one block."""
    blocks_c = tl.cdiv(columns, BLOCK_C)
    r = tl.program_id(0) // blocks_c * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(0) % blocks_c * BLOCK_C + tl.arange(0, BLOCK_C)
    offs = r[:, None].to(tl.int64) * stride_r + c[None, :].to(tl.int64) * stride_c
    x = tl.load(x_ptr + offs, (r[:, None] < R) & (c[None, :] < C), 0)
    tl.store(y_ptr + r[:, None].to(tl.int64) * columns + c[None, :], x, (r[:, None] < rows) & (c[None, :] < columns))


def zero_padded(x: Tensor, vector: int = VECTOR) -> Tensor:
    """x, in the same order of dimensions, in memory with zeros up to multiples of `vector` rows and columns."""
    if x.stride(0) < x.stride(1):
        return zero_padded(x.t(), vector).t()
    R, C = x.shape
    rows, columns = (triton.cdiv(size, vector) * vector for size in (R, C))
    y = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    copy_matrix(x, y)
    return y[:R, :C]


def copy_matrix(x: Tensor, y: Tensor) -> None:
    """y = x, and zeros where only y, which is contiguous, has elements; x may be the larger one."""
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[x.element_size()]  # zero has the same ones
    x, y = x.view(bits), y.view(bits)
    (rows, columns), grid = y.shape, (triton.cdiv(y.shape[0], 16) * triton.cdiv(y.shape[1], 256),)
    launch(pad_kernel, grid, x, y, *x.shape, *x.stride(), rows, columns, BLOCK_R=16, BLOCK_C=256, num_warps=4)
