"""The k largest numbers of each row in Triton: one program finds them one after the other."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int64
from torch import Tensor

from triton_kernels._runtime.contract import check_top_k
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.top_k._keys import ABOVE, BELOW, MOST_COLUMNS, indices_of, keys_of

DETERMINISTIC = True
LONGEST = 4096
"""Columns of the largest block."""

Values = Float[Tensor, "M k"]
Indices = Int64[Tensor, "M k"]


@triton.jit
def top_k_kernel(
    x_ptr, values_ptr, indices_ptr, N, K, stride_xm, stride_xn, BLOCK_N: tl.constexpr
):  # fmt: skip
    """One program reads one row K times, each time for the largest key below the last one."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    last = tl.full((), ABOVE, tl.int64)
    for place in range(0, K):
        best = tl.full((BLOCK_N,), BELOW, tl.int64)
        for start in range(0, N, BLOCK_N):
            offs = start + offs_n
            keys = keys_of(tl.load(x_ptr + offs * stride_xn, mask=offs < N, other=0.0), offs)
            best = tl.maximum(best, tl.where((offs < N) & (keys < last), keys, BELOW))
        last = tl.max(best, 0)
        index = indices_of(last)
        tl.store(values_ptr + row * K + place, tl.load(x_ptr + index * stride_xn))
        tl.store(indices_ptr + row * K + place, index)


@kept
def top_k(x: Float[Tensor, "M N"], *, k: int) -> tuple[Values, Indices]:
    """(values, indices) of the k largest numbers of each row, in descending order; NaN is larger than all others.

    Shapes: x (M, N), any strides, k from 1 to N; the results are contiguous, the indices int64.
    Dtypes: float32, float16, bfloat16; values are copied. Equal numbers come in the order of their indices.
    Tail: columns beyond N do not count. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or k; NotImplementedError for rows of 2^31 columns or more.
    """
    M, N = check_top_k(x, k)
    check_columns(N)
    values = torch.empty((M, k), dtype=x.dtype, device=x.device)
    indices = torch.empty((M, k), dtype=torch.int64, device=x.device)
    if M > 0:
        block = min(triton.next_power_of_2(N), LONGEST)
        with device_of(x):
            launch(top_k_kernel, (M,), x, values, indices, N, k, *x.stride(), block, num_warps=8)
    return values, indices


def check_columns(N: int) -> None:
    """Raises NotImplementedError for indices of more than 31 bits."""
    if N > MOST_COLUMNS:
        raise NotImplementedError(f"top_k: at most {MOST_COLUMNS} columns; got {N}")
