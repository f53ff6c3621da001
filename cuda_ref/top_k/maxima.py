"""The k largest numbers of each row in CUDA: adds a bound from the maxima of threads, and several blocks a row.

The row is read once. A block sorts only the keys from the bound on.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_top_k
from cuda_ref._runtime.device import multiprocessors
from cuda_ref._runtime.kept import kept
from cuda_ref.common.rows import PACK_BYTES, are_packed
from cuda_ref.top_k import Indices, Values, check_covered

DETERMINISTIC = True
THREADS, PACKS = 512, 4
"""Threads of a block and packs of a thread, as in maxima.cu: the longest part of a row."""
LEAST_PACKS = 256
"""Packs of 16 bytes of the shortest part, if few rows are divided among more blocks."""
MOST_PARTS = 65_535
"""Largest number of blocks in the y dimension of a grid."""


@kept
def top_k(x: Float[Tensor, "M N"], *, k: int) -> tuple[Values, Indices]:
    """(values, indices) of the k largest numbers of each row, in descending order; NaN is larger than all others.

    Shapes: x (M, N), any strides, k from 1 to N and at most 256; the results are contiguous, the indices int64.
    Dtypes: float32, float16, bfloat16; values are copied. Equal numbers come in the order of their indices.
    Tail: the last part of a row is shorter. Rows that do not begin and end at multiples of 16 bytes are read element by
    element.
    Memory: 16 bytes for each of the k keys of a part, if a row has several parts.
    Devices: CUDA; on the CPU the same kernels are emulated, only to check results.
    Raises: ValueError for other shapes, dtypes or k; NotImplementedError for k above 256, and for rows of more than
    65,535 parts; build.CudaError if the launch fails.
    Source: see maxima.cu.
    """
    M, N = check_top_k(x, k)
    check_covered(N, k)
    length, parts = division(x)
    if parts > MOST_PARTS:
        raise NotImplementedError(f"top_k: at most {MOST_PARTS * length} columns; got {N}")
    values, indices = x.new_empty(M, k), x.new_empty(M, k, dtype=torch.int64)
    if M > 0:
        keys = merged = indices
        if parts > 1:
            keys, merged = (x.new_empty(M, parts, k, dtype=torch.int64) for _ in range(2))
        build.launch(
            "top_k/maxima", "top_k_maxima", x.device,
            x, values, indices, keys, merged, M, N, k, length, *x.stride(), are_packed(x), build.DTYPES[x.dtype],
        )  # fmt: skip
    return values, indices


def config(x: Tensor, *, k: int) -> str:
    """The number of parts of a row, such as `top_k_maxima parts=3`; empty if there is nothing to compute."""
    return f"top_k_maxima parts={division(x)[1]}" if x.shape[0] else ""


def division(x: Tensor) -> tuple[int, int]:
    """The length of a part of a row, and the number of parts: enough for the row, or more if there are few rows."""
    (M, N), lanes = x.shape, PACK_BYTES // x.element_size()
    blocks = multiprocessors(x.device) if x.is_cuda else 3
    least = LEAST_PACKS if x.is_cuda else 32  # the emulated kernel has short parts, so that small tests have several
    packs = -(-N // lanes)
    wanted = max(-(-packs // (THREADS * PACKS)), min(-(-blocks // max(M, 1)), packs // least), 1)
    length = -(-packs // wanted) * lanes
    return length, -(-N // length)
