"""The k largest numbers of each row in CUDA: a block finds the k-th largest of its row digit by digit."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_top_k
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
MOST_K = 256
"""As in top_k.cu."""
MOST_COLUMNS = 2**31 - 1

Values = Float[Tensor, "M k"]
Indices = Int64[Tensor, "M k"]


@kept
def top_k(x: Float[Tensor, "M N"], *, k: int) -> tuple[Values, Indices]:
    """(values, indices) of the k largest numbers of each row, in descending order; NaN is larger than all others.

    Shapes: x (M, N), any strides, k from 1 to N and at most 256; the results are contiguous, the indices int64.
    Dtypes: float32, float16, bfloat16; values are copied. Equal numbers come in the order of their indices.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes or k; NotImplementedError for k above 256, and for rows of 2^31 columns
    or more; build.CudaError if the launch fails.
    Source: see top_k.cu.
    """
    M, N = check_top_k(x, k)
    check_covered(N, k)
    values, indices = x.new_empty(M, k), x.new_empty(M, k, dtype=torch.int64)
    if M > 0:
        build.launch("top_k/top_k", "top_k", x.device, x, values, indices, M, N, k, *x.stride(), build.DTYPES[x.dtype])
    return values, indices


def check_covered(N: int, k: int) -> None:
    """Raises NotImplementedError for k above MOST_K, and for indices of more than 31 bits."""
    if k > MOST_K:
        raise NotImplementedError(f"top_k: k must be at most {MOST_K}; got {k}")
    if N > MOST_COLUMNS:
        raise NotImplementedError(f"top_k: at most {MOST_COLUMNS} columns; got {N}")
