"""Prefix sums of rows in Triton: adds to the plain kernel several programs a row, which look back for earlier sums."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_rows
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True

GROUP = tl.constexpr(32)  # parts that share a total
KNOWN = tl.constexpr(1 << 32)  # words from this value on have a float32 in their lower half; 0: not yet known
PART, CLEARED = 8192, 1024  # elements per program


@triton.jit
def clear_kernel(words_ptr, count, BLOCK: tl.constexpr):
    """One program sets BLOCK words to 0."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(words_ptr + offs, tl.zeros((BLOCK,), tl.int64), mask=offs < count)


@triton.jit
def publish(word_ptr, value):
    bits = value.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    tl.atomic_xchg(word_ptr, bits + KNOWN)


@triton.jit
def awaited(words_ptr, offs, mask):
    """Waits until all of these words are known. Returns their numbers, 0 where masked."""
    words = tl.load(words_ptr + offs, mask=mask, other=KNOWN, volatile=True)
    while tl.min(words, 0) < KNOWN:
        words = tl.load(words_ptr + offs, mask=mask, other=KNOWN, volatile=True)
    return words.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def lookback_kernel(x_ptr, y_ptr, words_ptr, M, N, parts, groups, stride_xm, stride_xn, BLOCK_N: tl.constexpr):
    """One program computes BLOCK_N elements of a row, and waits only for programs that have started before it.

    words: a ticket, the sums of M x parts parts, and M x groups totals: the sum of all parts up to the last of 32. Sums
    are added in one order, whichever program is first, so equal inputs give equal bits.
    """
    ticket = tl.atomic_add(words_ptr, tl.full((), 1, tl.int64))
    row, number = ticket % M, ticket // M  # part 0 of all rows, then part 1
    sums_ptr = words_ptr + 1 + row * parts
    totals_ptr = words_ptr + 1 + tl.cast(M, tl.int64) * parts + row * groups
    offs_n = number * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = offs_n < N
    x = tl.load(x_ptr + row * stride_xm + offs_n * stride_xn, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(x, 0)
    publish(sums_ptr + number, total)

    group, lanes = number // GROUP, tl.arange(0, GROUP)
    before = tl.sum(awaited(sums_ptr, group * GROUP + lanes, group * GROUP + lanes < number), 0)
    if group > 0:
        of_groups = awaited(totals_ptr, group - 1 + lanes * 0, lanes < 1)
        before += tl.sum(of_groups, 0)
    if number % GROUP == GROUP - 1:
        publish(totals_ptr + group, before + total)
    tl.store(y_ptr + row * N + offs_n, before + tl.cumsum(x, 0), mask=mask)


@kept
def cumsum(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i, j] = sum over k <= j of x[i, k].

    Shapes: x (M, N), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: columns beyond N count as 0. Offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016. There a
    part takes the latest total that it finds. Here it takes the total of the last group of 32 parts, and the sums of
    the parts after this group.
    """
    M, N = check_rows("cumsum", x)
    y = empty_output((M, N), x.dtype, x.device)
    if y.numel() > 0:
        block = min(triton.next_power_of_2(N), PART)
        parts = triton.cdiv(N, block)
        groups = triton.cdiv(parts, GROUP.value)
        words = torch.empty(1 + M * (parts + groups), dtype=torch.int64, device=x.device)
        with device_of(x):
            launch(clear_kernel, (triton.cdiv(words.numel(), CLEARED),), words, words.numel(), CLEARED)
            launch(lookback_kernel, (M * parts,), x, y, words, M, N, parts, groups, *x.stride(), block, num_warps=8)
    return finished_output(y, x.dtype)
