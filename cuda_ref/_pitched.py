"""Copies of matrices whose rows begin at multiples of 16 bytes, as TMA needs them."""

from torch import Tensor

from . import build


def pitched(*operands: tuple[Tensor, int]) -> list[Tensor]:
    """Copies of one or two matrices of the same dtype and device, by one kernel.

    Args:
        operands: a matrix, and the dimension that is contiguous in its copy.

    Returns:
        matrices of the same shapes. The other stride is the least multiple of 16 bytes. They take as many bytes of
        device memory as the matrices, rounded up to 16 bytes a row.

    Raises:
        NotImplementedError: for copies of more than 16 GiB.
    """
    copies, arguments = [], []
    for x, inner in operands:
        align = 16 // x.element_size()
        pitch = -(-x.shape[inner] // align) * align
        if x.shape[1 - inner] * pitch > 2**30 * align:
            raise NotImplementedError(f"a copy of at most 16 GiB is made; got a matrix {tuple(x.shape)} of {x.dtype}")
        copy = x.new_empty(x.shape[1 - inner], pitch)
        rows = copy[:, : x.shape[inner]]
        copies.append(rows if inner == 1 else rows.t())
        arguments += [x, copy, x.shape[1 - inner], x.shape[inner], x.stride(1 - inner), x.stride(inner)]
    arguments += [None, None, 0, 0, 0, 0] * (2 - len(operands))
    build.launch("_pitched", "copy_pitched", copies[0].device, *arguments, copies[0].element_size())
    return copies
