"""The rows of matrices as kernels that read packs take them."""

from torch import Tensor


def gapless(x: Tensor) -> Tensor:
    """x, or a copy of it if the elements of a row have gaps."""
    return x if x.stride(-1) == 1 else x.contiguous()


def one_row(*matrices: Tensor) -> tuple[int, int, list[int]]:
    """Rows, columns and strides of rows of matrices of one shape; a single long row if all are contiguous."""
    M, N = matrices[0].shape
    if all(each.is_contiguous() for each in matrices):
        return 1, M * N, [0] * len(matrices)
    return M, N, [each.stride(0) for each in matrices]
