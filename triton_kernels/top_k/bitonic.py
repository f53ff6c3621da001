"""The k largest numbers of each row in Triton: adds bitonic sorting of blocks, and several programs for a long row.

A program keeps the largest keys of its part of the row in descending order. It sorts the largest of a block with
`tl.topk` and merges both lists: if one is reversed, the larger elements of each pair are the largest of both lists. A
block is skipped if none of its keys is above the smallest key that is kept.

Source: A. Shanbhag, H. Pirk, S. Madden, "Efficient Top-K Query Processing on GPUs", SIGMOD 2018 (bitonic top-k).
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_top_k
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.top_k import Indices, Values, check_columns
from triton_kernels.top_k._keys import BELOW, indices_of, keys_of

DETERMINISTIC = True
LEAST, MOST = 16, 256
"""Keys that a program keeps: k, rounded up to a power of two."""
TILE = 2048
"""Keys of a block, in several rows if they are short."""
PROGRAMS = 264
"""Programs that keep a GPU of 132 multiprocessors busy: fewer rows are divided into parts."""
PART = 4096
"""Smallest number of columns of a part."""


@triton.jit
def merged(best, others):
    """The largest of two descending lists of each row, in descending order."""
    return tl.sort(tl.maximum(best, tl.flip(others, 1)), 1, True)


@triton.jit
def store_results(best, x_ptr, values_ptr, indices_ptr, rows, M, K, stride_xm, stride_xn, KEPT: tl.constexpr):
    places = tl.arange(0, KEPT)[None, :]
    mask = (rows[:, None] < M) & (places < K)
    indices = indices_of(best)
    values = tl.load(x_ptr + rows[:, None] * stride_xm + indices * stride_xn, mask=mask)
    tl.store(values_ptr + rows[:, None] * K + places, values, mask=mask)
    tl.store(indices_ptr + rows[:, None] * K + places, indices, mask=mask)


@triton.jit
def bitonic_kernel(
    x_ptr, keys_ptr, values_ptr, indices_ptr, M, N, K, part, stride_xm, stride_xn,
    KEPT: tl.constexpr, WHOLE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program keeps the largest keys of BLOCK_M rows, or of a part of one row, which goes to keys_ptr."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    begin = tl.program_id(1).to(tl.int64) * part
    end = tl.minimum(begin + part, N)
    offs_n = tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    best = tl.full((BLOCK_M, KEPT), BELOW, tl.int64)
    for start in range(begin, end, BLOCK_N):
        offs = start + offs_n
        mask = (rows[:, None] < M) & (offs < end)
        keys = keys_of(tl.load(x_ptr + rows[:, None] * stride_xm + offs * stride_xn, mask=mask, other=0.0), offs)
        keys = tl.where(mask, keys, BELOW)
        if tl.max((tl.max(keys, 1) > tl.min(best, 1)).to(tl.int32), 0) > 0:
            best = merged(best, tl.topk(keys, KEPT, 1))
    if WHOLE:
        store_results(best, x_ptr, values_ptr, indices_ptr, rows, M, K, stride_xm, stride_xn, KEPT)
    else:
        parts = tl.num_programs(1)
        places = (rows[:, None] * parts + tl.program_id(1)) * KEPT + tl.arange(0, KEPT)[None, :]
        tl.store(keys_ptr + places, best, mask=rows[:, None] < M)


@triton.jit
def merge_kernel(
    keys_ptr, x_ptr, values_ptr, indices_ptr, M, K, parts, stride_xm, stride_xn, KEPT: tl.constexpr
):  # fmt: skip
    """One program merges the parts of one row."""
    rows = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    places = rows[:, None] * parts * KEPT + tl.arange(0, KEPT)[None, :]
    best = tl.load(keys_ptr + places)
    for part in range(1, parts):
        best = merged(best, tl.load(keys_ptr + places + part * KEPT))
    store_results(best, x_ptr, values_ptr, indices_ptr, rows, M, K, stride_xm, stride_xn, KEPT)


def division(M: int, N: int) -> tuple[int, int]:
    """The columns of a part, and the number of parts: several if there are few rows."""
    wanted = max(1, min(PROGRAMS // max(M, 1), triton.cdiv(N, PART)))
    part = triton.cdiv(triton.cdiv(N, wanted), TILE) * TILE
    return part, triton.cdiv(N, part)


@kept
def top_k(x: Float[Tensor, "M N"], *, k: int) -> tuple[Values, Indices]:
    """(values, indices) of the k largest numbers of each row, in descending order; NaN is larger than all others.

    Shapes: x (M, N), any strides, k from 1 to N and at most 256; the results are contiguous, the indices int64.
    Dtypes: float32, float16, bfloat16; values are copied. Equal numbers come in the order of their indices.
    Tail: columns beyond N count as less than all numbers. Offsets are int64.
    Memory: 8 bytes for each key that a part keeps.
    Errors: ValueError for other shapes, dtypes, devices or k; NotImplementedError for k above 256, and for rows of 2^31
    columns or more.
    """
    M, N = check_top_k(x, k)
    check_columns(N)
    if k > MOST:
        raise NotImplementedError(f"top_k: k must be at most {MOST}; got {k}")
    values = torch.empty((M, k), dtype=x.dtype, device=x.device)
    indices = torch.empty((M, k), dtype=torch.int64, device=x.device)
    if M > 0:
        kept_keys = max(triton.next_power_of_2(k), LEAST)
        part, parts = division(M, N)
        columns = max(min(triton.next_power_of_2(N), TILE), 2 * kept_keys)
        rows = 1 if parts > 1 else max(1, min(TILE // columns, triton.next_power_of_2(M)))
        keys = torch.empty((M, parts, kept_keys) if parts > 1 else (1,), dtype=torch.int64, device=x.device)
        with device_of(x):
            launch(
                bitonic_kernel, (triton.cdiv(M, rows), parts),
                x, keys, values, indices, M, N, k, part, *x.stride(), kept_keys, parts == 1, rows, columns, num_warps=8,
            )  # fmt: skip
            if parts > 1:
                launch(
                    merge_kernel, (M,),
                    keys, x, values, indices, M, k, parts, *x.stride(), kept_keys, num_warps=4,
                )  # fmt: skip
    return values, indices
