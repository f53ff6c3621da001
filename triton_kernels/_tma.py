"""Which matrices TMA can copy, and from which side."""

import triton
from torch import Tensor


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
