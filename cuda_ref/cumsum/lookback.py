"""Prefix sums of rows in CUDA: adds several blocks for each row, which look back for the sum of the parts before."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_rows
from cuda_ref._runtime.device import multiprocessors
from cuda_ref._runtime.kept import kept
from cuda_ref.common.rows import PACK_BYTES, are_packed

DETERMINISTIC = True

PART_BYTES = 256 * 4 * PACK_BYTES
"""Bytes of x in a part: 4 packs for each of 256 threads."""
GROUP = 32
"""Parts that share a total."""


@kept
def cumsum(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i, j] = sum over k <= j of x[i, k].

    Shapes: x (M, N), rows that begin and end at multiples of 16 bytes; the output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: packs beyond the last count as 0. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for other rows; build.CudaError if the launch
    fails.
    """
    M, N = check_rows("cumsum", x)
    if not are_packed(x):
        raise NotImplementedError(f"cumsum: rows must begin and end at multiples of {PACK_BYTES} bytes")
    y = x.new_empty(M, N)
    if y.numel() > 0:
        parts = -(-N * x.element_size() // PART_BYTES)
        words = x.new_empty(1 + M * (parts + -(-parts // GROUP)), dtype=torch.int64)
        build.launch(
            "cumsum/lookback", "cumsum_lookback", x.device,
            x, y, words, M, N, x.stride(0), parts, multiprocessors(x.device), build.DTYPES[x.dtype],
        )  # fmt: skip
    return y
