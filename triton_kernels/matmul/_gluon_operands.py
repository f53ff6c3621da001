"""Operands of gluon.py in an order that wgmma can read, copied where TMA or wgmma cannot read them as they are."""

import torch
import triton
from torch import Tensor

from triton_kernels._common.padding import copy_matrix
from triton_kernels._common.tma import TmaMatrix, both_tma_matrices, find_tma


def operands(a: Tensor, b: Tensor) -> tuple[TmaMatrix, TmaMatrix, bool]:
    """a and b in an order that wgmma can read, or b^T and a^T, whose product is the transpose."""
    left, right = both_tma_matrices(a, b)
    if a.dtype == torch.float8_e4m3fn:
        left = left if left.row_major else _with_rows(a)
        right = right if not right.row_major else _with_columns(b)
    elif a.dtype == torch.float32:
        # wgmma reads 32-bit operands from shared memory only with K contiguous. The left operand may also come from
        # registers, and is transposed on the way: two row-major operands give C^T = B^T A^T.
        if right.row_major and not left.row_major:
            right = _with_columns(b)
        if right.row_major:
            return as_transpose(right), as_transpose(left), True
    return left, right, False


def copies(a: Tensor, b: Tensor) -> list[str]:
    """The kernels by which `operands` copies a and b."""
    found = [find_tma(x, x.element_size()) for x in (a, b)]
    steps = [[], ["pad"], ["pad_both"]][found.count(None)]
    a_rows, b_rows = (
        x.stride(0) >= x.stride(1) if each is None else each.row_major for x, each in zip((a, b), found, strict=True)
    )
    if a.dtype == torch.float8_e4m3fn:
        return steps + ["pad"] * ((not a_rows) + b_rows)
    return steps + ["pad"] * (a.dtype == torch.float32 and b_rows and not a_rows)


def _with_rows(x: Tensor) -> TmaMatrix:
    """x, copied so that its rows are contiguous."""
    aligned = 16 // x.element_size()
    pitch = triton.cdiv(x.shape[1], aligned) * aligned
    copy = torch.empty((x.shape[0], pitch), dtype=x.dtype, device=x.device)
    copy_matrix(x, copy)
    return TmaMatrix(copy[:, : x.shape[1]], pitch, True)


def _with_columns(x: Tensor) -> TmaMatrix:
    return as_transpose(_with_rows(x.t()))


def as_transpose(x: TmaMatrix) -> TmaMatrix:
    """The transpose of x, in the same memory."""
    return x._replace(row_major=not x.row_major)
