"""Which tensors TMA can copy, and from which side."""

import torch
import triton
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

HEADS_LAYOUT = gl.NVMMASharedLayout(128, 16, rank=4)


def tma_matrix(name: str, x: Tensor, element: int) -> tuple[Tensor, int, bool]:
    """x or its transpose, whichever has rows that TMA can copy.

    Arguments: the argument's name for the error; x (R, C); bytes per element in memory that counts for alignment.
    Returns: the matrix; the distance of its rows in elements; whether it is x, not its transpose.
    Raises: NotImplementedError where neither rows nor columns of x are contiguous and at multiples of 16 bytes.
    """
    for row_major, matrix in ((True, x), (False, x.t())):
        pitch = matrix.stride(0) if matrix.shape[0] > 1 else triton.cdiv(matrix.shape[1], 16) * 16
        contiguous = matrix.stride(1) == 1 or matrix.shape[1] == 1
        if contiguous and pitch >= matrix.shape[1] and pitch * element % 16 == 0 and matrix.data_ptr() % 16 == 0:
            return matrix, pitch, row_major
    raise NotImplementedError(
        f"matmul: TMA needs {name}'s rows or columns contiguous, not overlapping, and each at a multiple of 16 bytes; "
        f"got strides {x.stride()} of {element}-byte elements and an address {x.data_ptr() % 16} bytes past a multiple"
    )


def tma_rows(x: Tensor) -> Tensor:
    """x (B, H, S, D), or a contiguous copy where TMA cannot read x: rows contiguous, each at a multiple of 16 bytes."""
    unit = 16 // x.element_size()
    outer = [stride for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True) if size > 1]
    if x.stride(3) == 1 and all(s > 0 and s % unit == 0 for s in outer) and x.data_ptr() % 16 == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)


def descriptor(x: Tensor, block_m: int, block_d: int) -> TensorDescriptor:
    """What TMA reads or writes blocks of x (B, H, S, D) through, (1, 1, block_m, block_d), swizzled for wgmma."""
    spans = [x.shape[1] * x.shape[2] * x.shape[3], x.shape[2] * x.shape[3], x.shape[3]]
    strides = [span if size == 1 else stride for size, stride, span in zip(x.shape, x.stride(), spans, strict=False)]
    return TensorDescriptor(x, list(x.shape), [*strides, 1], [1, 1, block_m, block_d], HEADS_LAYOUT)
