"""The division of a row of a matrix among the blocks of a cluster."""

from typing import NamedTuple

from torch import Tensor

PACK_BYTES = 16
WARP = 32
MULTIPROCESSORS = 132  # number on an H100 or H200
CLUSTER_THREADS = 512  # threads per block of a cluster; two blocks take all registers of a multiprocessor
CLUSTER_PACKS = 8  # packs that each thread holds
BLOCK_PACKS = CLUSTER_THREADS * CLUSTER_PACKS  # packs that a block holds


def are_packed(x: Tensor, *vectors: Tensor) -> bool:
    """True if each row of x, and each contiguous vector, begins and ends at multiples of 16 bytes, without gaps."""
    lanes = PACK_BYTES // x.element_size()
    M, N = x.shape
    aligned = all(each.data_ptr() % PACK_BYTES == 0 for each in (x, *vectors))
    return aligned and N % lanes == 0 and x.stride(1) == 1 and (M == 1 or x.stride(0) % lanes == 0)


class Sharing(NamedTuple):
    """cluster: blocks that share a row. threads: per block."""

    cluster: int
    threads: int


def sharing(operation: str, x: Tensor, packed: bool) -> Sharing:
    """The division of each row of x: the fewest blocks that hold it, or more while multiprocessors are idle.

    Raises: NotImplementedError for rows that are not packed, that one block holds, or that no cluster holds.
    """
    rows, packs = x.shape[0], -(-x.shape[1] * x.element_size() // PACK_BYTES)
    if not packed:
        raise NotImplementedError(f"{operation}: rows must begin and end at multiples of {PACK_BYTES} bytes")
    if not BLOCK_PACKS < packs <= 8 * BLOCK_PACKS:
        least, most = BLOCK_PACKS * PACK_BYTES, 8 * BLOCK_PACKS * PACK_BYTES
        raise NotImplementedError(
            f"{operation}: clusters share rows of more than {least} and at most {most} bytes; got {packs * PACK_BYTES}"
        )
    cluster = 2
    while cluster < 8 and (packs > BLOCK_PACKS * cluster or rows * cluster < MULTIPROCESSORS):
        cluster *= 2
    return Sharing(cluster, WARP * -(-packs // (CLUSTER_PACKS * WARP * cluster)))
