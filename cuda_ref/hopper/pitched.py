"""Copies of matrices whose rows begin at multiples of 16 bytes, as TMA requires."""

from torch import Tensor

from cuda_ref import build

LINE, SHORT_ROW = 128, 512
"""Bytes of a line of the L2 cache; rows shorter than SHORT_ROW are not padded to whole lines."""


def pitch(columns: int, element_bytes: int) -> int:
    """Elements from one row of a copy to the next. Rows of whole cache lines need half as many L2 cache requests."""
    align = (LINE if columns * element_bytes >= SHORT_ROW else 16) // element_bytes
    return -(-columns // align) * align


def pitched(*operands: tuple[Tensor, int]) -> list[Tensor]:
    """Copies of one or two matrices of the same dtype and device, by one kernel.

    Args:
        operands: a matrix, and the dimension that will be contiguous in its copy.

    Returns:
        matrices of the same shapes, with the stride that `pitch` gives. They take as many bytes of device memory as the
        originals, with each row rounded up to 16 bytes, or to 128 bytes.

    Raises:
        NotImplementedError: for copies of more than 16 GiB.
    """
    copies, arguments = [], []
    for x, inner in operands:
        between = pitch(x.shape[inner], x.element_size())
        if x.shape[1 - inner] * between * x.element_size() > 2**34:
            raise NotImplementedError(f"copies of at most 16 GiB are made; got a matrix {tuple(x.shape)} of {x.dtype}")
        copy = x.new_empty(x.shape[1 - inner], between)
        rows = copy[:, : x.shape[inner]]
        copies.append(rows if inner == 1 else rows.t())
        arguments += [x, copy, x.shape[1 - inner], x.shape[inner], x.stride(1 - inner), x.stride(inner), between]
    arguments += [None, None, 0, 0, 0, 0, 0] * (2 - len(operands))
    build.launch("hopper/pitched", "copy_pitched", copies[0].device, *arguments, copies[0].element_size())
    return copies
