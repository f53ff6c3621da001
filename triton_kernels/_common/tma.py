"""TMA descriptors of tensors, and copies of tensors that TMA cannot read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor as TritonDescriptor

from triton_kernels._common.padding import both_zero_padded, copy_matrix, zero_padded

HEADS_LAYOUT = gl.NVMMASharedLayout(128, 16, rank=4)


class TmaMatrix(NamedTuple):
    """A matrix in the layout that TMA copies: contiguous rows, `pitch` elements apart. row_major: False if it is the
    transpose of the original."""

    matrix: Tensor
    pitch: int
    row_major: bool


def find_tma(x: Tensor, element: int) -> TmaMatrix | None:
    """x (R, C) or its transpose, whichever has contiguous rows at multiples of 16 bytes; None if neither has.

    element: bytes of an element.
    """
    for row_major, matrix in ((True, x), (False, x.t())):
        pitch = matrix.stride(0) if matrix.shape[0] > 1 else triton.cdiv(matrix.shape[1], 16) * 16
        contiguous = matrix.stride(1) == 1 or matrix.shape[1] == 1
        if contiguous and pitch >= matrix.shape[1] and pitch * element % 16 == 0 and matrix.data_ptr() % 16 == 0:
            return TmaMatrix(matrix, pitch, row_major)
    return None


def tma_matrix(x: Tensor, element: int) -> TmaMatrix:
    """Returns x in the layout that TMA copies; a copy of x if TMA cannot read x itself."""
    found = find_tma(x, element) or find_tma(zero_padded(x, 16 // element), element)
    assert found is not None
    return found


def both_tma_matrices(a: Tensor, b: Tensor) -> tuple[TmaMatrix, TmaMatrix]:
    """`tma_matrix` of two matrices of one dtype. If both must be copied, one kernel copies them."""
    element = a.element_size()
    found = find_tma(a, element), find_tma(b, element)
    if found == (None, None):
        a, b = both_zero_padded(a, b, 16 // element)
    return found[0] or tma_matrix(a, element), found[1] or tma_matrix(b, element)


@contextmanager
def tma_output(out: Tensor, element: int) -> Iterator[TmaMatrix]:
    """Yields memory that a kernel writes by TMA: out, or a buffer that is copied to out at the end."""
    found = find_tma(out, element)
    if found is not None and found.matrix.shape[1] * element % 16 == 0:  # otherwise TMA may write beyond a single row
        yield found
        return
    vector = 16 // element
    M, N = out.shape
    columns = triton.cdiv(N, vector) * vector
    aligned = torch.empty((M, columns), dtype=out.dtype, device=out.device)[:, :N]
    yield TmaMatrix(aligned, columns, True)
    copy_matrix(aligned, out)


def readable(x: Tensor) -> bool:
    """True if TMA can read x (B, H, S, D): rows contiguous, each at a multiple of 16 bytes."""
    unit = 16 // x.element_size()
    outer = [stride for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True) if size > 1]
    return x.stride(3) == 1 and all(s > 0 and s % unit == 0 for s in outer) and x.data_ptr() % 16 == 0


def tma_rows(x: Tensor) -> Tensor:
    """x (B, H, S, D), or a contiguous copy where TMA cannot read x."""
    return x if readable(x) else x.clone(memory_format=torch.contiguous_format)


def strides_of(x: Tensor) -> list[int]:
    """Strides of a readable x (B, H, S, D). A dimension of size 1 gets a valid stride, which TMA demands."""
    spans = [x.shape[1] * x.shape[2] * x.shape[3], x.shape[2] * x.shape[3], x.shape[3]]
    return [span if size == 1 else stride for size, stride, span in zip(x.shape, x.stride(), spans, strict=False)] + [1]


def describe(x: Tensor, rows: int = 1, columns: int | None = None) -> TritonDescriptor:
    """Triton's TMA descriptor of x (B, H, S, D), for blocks of `rows` rows, which a configuration may change."""
    return TritonDescriptor(x, list(x.shape), strides_of(x), [1, 1, rows, x.shape[3] if columns is None else columns])


def descriptor(x: Tensor, block_m: int, block_d: int) -> TensorDescriptor:
    """Gluon's TMA descriptor of x (B, H, S, D), for blocks (1, 1, block_m, block_d), swizzled for wgmma."""
    return TensorDescriptor(x, list(x.shape), strides_of(x), [1, 1, block_m, block_d], HEADS_LAYOUT)
