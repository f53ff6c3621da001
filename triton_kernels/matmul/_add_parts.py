"""Split-K: adds the partial sums in a fixed order."""

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._runtime.launch import launch

STEP = 256
"""Each part of K has a multiple of this many terms, so that each BLOCK_K divides it."""


@triton.jit(do_not_specialize=["count", "columns", "stride_part", "stride_r"])
def add_parts_kernel(
    sums_ptr, c_ptr, count, columns, stride_part, stride_r, stride_c, PARTS: tl.constexpr, FLAT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """c[i] = sum over p of sums[p, i], in the order of p; float32.

    FLAT: the parts have the layout of c. Otherwise they have rows of `columns` elements, strides stride_r and stride_c.
    """
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FLAT:
        at = offs.to(tl.int64)
    else:
        at = (offs // columns).to(tl.int64) * stride_r + (offs % columns).to(tl.int64) * stride_c
    total = tl.load(sums_ptr + at, offs < count, 0.0)
    for part in tl.static_range(1, PARTS):
        total += tl.load(sums_ptr + tl.full((), part, tl.int64) * stride_part + at, offs < count, 0.0)
    tl.store(c_ptr + offs, total, offs < count)


def add_parts(sums: Tensor, c: Tensor) -> None:
    """Stores the sum of (parts, count) float32 numbers in c, whose count elements have no gaps in memory."""
    parts, count = sums.shape
    launch(
        add_parts_kernel, (triton.cdiv(count, 256),), sums, c, count, count, count, count, 1,
        PARTS=parts, FLAT=True, BLOCK=256, num_warps=4,
    )  # fmt: skip


def add_strided_parts(sums: Tensor, c: Tensor) -> None:
    """Stores the sum of (parts, R, C) float32 numbers, with any strides, in c (R, C), contiguous."""
    parts, R, C = sums.shape
    launch(
        add_parts_kernel, (triton.cdiv(R * C, 256),), sums, c, R * C, C, *sums.stride(),
        PARTS=parts, FLAT=False, BLOCK=256, num_warps=4,
    )  # fmt: skip
