"""Products with few rows, columns or terms, on CUDA cores. Their time is that of reading the larger operand once."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._runtime.launch import launch
from triton_kernels.matmul._add_parts import add_parts

VECTOR = 8
"""16-bit elements that a thread loads at a time: 16 bytes."""
LOADS = 4
"""Loads of a thread in flight at the same time."""
MOST_ROWS = 16
"""Largest number of rows of C per program."""


class Few(NamedTuple):
    """A product on CUDA cores."""

    columns: int
    """Columns of the larger operand that a program reads."""
    warps: int
    parts: int


@triton.jit(do_not_specialize=["M", "N", "K", "K_part", "stride_am", "pitch", "stride_cm", "stride_cn"])
def few_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, K_part, stride_am, stride_ak, pitch, stride_cm, stride_cn,
    PARTS: tl.constexpr, B_ROWS: tl.constexpr, ALIGN: tl.constexpr, ALIGN_A: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, LOADS: tl.constexpr,
):  # fmt: skip
    """One program computes [ROWS, BLOCK_N] of C, or of its part of K, by multiplications and additions in float32.

    B is read in steps of LOADS blocks [BLOCK_K, BLOCK_N], all loaded before the first is used. A thread keeps sums for
    its own elements of a block; the sums of the threads are added once, at the end.
    B_ROWS: B is row-major, otherwise column-major. Its rows (columns) start at multiples of ALIGN, `pitch` apart.
    """
    off_m = tl.program_id(1) * ROWS
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    pitch = pitch // ALIGN * ALIGN
    if B_ROWS:
        N = N // ALIGN * ALIGN
    else:
        K = K // ALIGN * ALIGN
    begin, end = 0, K
    if PARTS:
        begin = tl.program_id(2) * K_part // 256 * 256
        end = min(K, begin + K_part // 256 * 256)
        if not B_ROWS:
            end = end // ALIGN * ALIGN
        c_ptr += tl.program_id(2).to(tl.int64) * M * N
    sums = (tl.zeros((BLOCK_K, BLOCK_N), tl.float32),) * ROWS
    for start in range(begin, end, BLOCK_K * LOADS):
        blocks = ()
        for i in tl.static_range(LOADS):
            k = start + i * BLOCK_K + offs_k
            inside = (k[:, None] < end) & (offs_n[None, :] < N)
            if B_ROWS:
                at = k[:, None].to(tl.int64) * pitch + offs_n[None, :]
            else:
                at = k[:, None] + offs_n[None, :].to(tl.int64) * pitch
            blocks = blocks + (tl.load(b_ptr + at, inside, 0.0),)  # noqa: RUF005
        for i in tl.static_range(LOADS):
            k = start + i * BLOCK_K + offs_k
            inside = (k[:, None] < end) & (offs_n[None, :] < N)
            b = blocks[i].to(tl.float32)
            new = ()
            for m in tl.static_range(ROWS):
                row = tl.minimum(off_m + m, M - 1).to(tl.int64) * (stride_am // ALIGN_A * ALIGN_A)
                at = row + k.to(tl.int64) * stride_ak
                if B_ROWS:
                    a = tl.load(a_ptr + at, k < end, 0.0)[:, None]
                else:  # each thread loads the element of A for each of its elements of B
                    a = tl.load(a_ptr + at[:, None] + offs_n[None, :] * 0, inside, 0.0)
                new = new + (sums[m] + a.to(tl.float32) * b,)  # noqa: RUF005
            sums = new
    for m in tl.static_range(ROWS):
        c = tl.sum(sums[m], 0)
        at = (off_m + m).to(tl.int64) * stride_cm + offs_n.to(tl.int64) * stride_cn
        tl.store(c_ptr + at, c, (off_m + m < M) & (offs_n < N))


def few_parts(K: int, plan: Few) -> int:
    """Parts of K: the planned number, or fewer, since each part has a multiple of 256 terms."""
    return triton.cdiv(K, _part_terms(K, plan))


def _part_terms(K: int, plan: Few) -> int:
    return triton.cdiv(triton.cdiv(K, plan.parts), 256) * 256


def multiply_few(plan: Few, a: Tensor, b: Tensor, c: Tensor) -> None:
    """c = a b. b has a contiguous dimension; the elements of c have no gaps in memory."""
    (M, K), N = a.shape, b.shape[1]
    b_rows = b.stride(1) == 1
    pitch = b.stride(0) if b_rows else b.stride(1)
    along = N if b_rows else K
    aligned = pitch % VECTOR == 0 and along % VECTOR == 0 and b.data_ptr() % 16 == 0
    a_aligned = a.stride(1) == 1 and a.stride(0) % VECTOR == 0 and a.data_ptr() % 16 == 0
    rows = min(MOST_ROWS, triton.next_power_of_2(M))
    block_k = VECTOR * 32 * plan.warps // plan.columns
    parts, k_part = few_parts(K, plan), _part_terms(K, plan)
    sums = c if parts == 1 else torch.empty((parts, c.numel()), dtype=torch.float32, device=a.device)
    launch(
        few_kernel, (triton.cdiv(N, plan.columns), triton.cdiv(M, rows), parts),
        a, b, sums, M, N, K, k_part, *a.stride(), pitch, *c.stride(),
        PARTS=parts > 1, B_ROWS=b_rows, ALIGN=VECTOR if aligned else 1,
        ALIGN_A=VECTOR if a_aligned else 1, ROWS=rows,
        BLOCK_N=plan.columns, BLOCK_K=block_k, LOADS=LOADS, num_warps=plan.warps,
    )  # fmt: skip
    if parts > 1:
        add_parts(sums, c)
