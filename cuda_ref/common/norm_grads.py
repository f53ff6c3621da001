"""The division of the rows of a norm's gradient among blocks that stay on the device."""

from typing import NamedTuple

import torch
from torch import Tensor

from cuda_ref._runtime.device import multiprocessors
from cuda_ref.common.rows import PACK_BYTES, WARP, are_packed

THREADS = 512  # most threads of a block, and threads per multiprocessor: each has up to 128 registers
ROWS = 4  # rows per block, if a warp computes one


class Blocks(NamedTuple):
    """count: blocks of the launch. partial: memory for the sums of each row of threads, for each of `results`."""

    count: int
    partial: Tensor


def resident_blocks(operation: str, x: Tensor, weight: Tensor, dy: Tensor, results: int) -> Blocks:
    """As many blocks as the device holds at a time, at most one for each row or group of rows.

    Raises: NotImplementedError for rows that are not packed, and for rows that no block holds.
    """
    M, N = x.shape
    packs = N * x.element_size() // PACK_BYTES
    if not (are_packed(x, weight) and are_packed(dy)):
        raise NotImplementedError(f"{operation}: rows must begin and end at multiples of {PACK_BYTES} bytes")
    if packs > 4 * THREADS:
        most = 4 * THREADS * PACK_BYTES
        raise NotImplementedError(f"{operation}: a block holds rows of at most {most} bytes; got {packs * PACK_BYTES}")
    short = packs <= 2 * WARP
    rows = ROWS if short else 1
    each = 2 if packs <= 2 * THREADS else 4
    threads = WARP * ROWS if short else WARP * -(-packs // (WARP * each))
    count = min(-(-M // rows), multiprocessors(x.device) * (THREADS // threads))
    return Blocks(count, torch.empty(results * count * rows * N, dtype=torch.float32, device=x.device))
