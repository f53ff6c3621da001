"""Long sums in parts: how many, and a kernel that adds them in a fixed order."""

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._configs import multiprocessors
from triton_kernels._launch import launch

STEP = 256
"""A part has a multiple of this many terms, which all steps over K divide."""
SIDE = 64  # of the tiles that are counted
MOST_PARTS = 64
STEP_US, ADDING_US, BYTES_PER_US = 0.7, 3.0, 2.5e6
"""Time of 256 terms of a tile if the device waits for memory; of the second kernel, with its launch; of its traffic."""


def parts_of(M: int, N: int, K: int, a: Tensor) -> tuple[int, int]:
    """The parts into which K is divided, and the terms of a part, a multiple of STEP.

    The least predicted time of a wave of programs, each of which adds up one part of a tile, and of adding the parts.
    """
    if not a.is_cuda or a.element_size() != 2:
        return 1, K
    steps, tiles = triton.cdiv(K, STEP), triton.cdiv(M, SIDE) * triton.cdiv(N, SIDE)
    most = min(multiprocessors(a) // tiles, steps, MOST_PARTS)

    def predicted_us(parts: int) -> float:
        adding = ADDING_US + 4 * (parts + 1) * M * N / BYTES_PER_US if parts > 1 else 0.0
        return triton.cdiv(steps, parts) * STEP_US + adding

    chosen = min(range(1, max(most, 1) + 1), key=predicted_us)
    each = triton.cdiv(steps, chosen)
    return triton.cdiv(steps, each), each * STEP if chosen > 1 else K


@triton.jit(do_not_specialize=["count", "columns", "stride_part", "stride_r"])
def add_parts_kernel(
    sums_ptr, c_ptr, count, columns, stride_part, stride_r, stride_c, PARTS: tl.constexpr, FLAT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """c[i] = sum over p of sums[p, i], in the order of p; float32.

    FLAT: the parts have the layout of c; otherwise i is an element of rows of so many columns, with these strides.
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
    """Stores the sum of (parts, count) float32 numbers in c, whose count elements follow each other in memory."""
    parts, count = sums.shape
    launch(
        add_parts_kernel, (triton.cdiv(count, 256),), sums, c, count, count, count, count, 1,
        PARTS=parts, FLAT=True, BLOCK=256, num_warps=4,
    )  # fmt: skip


def add_strided_parts(sums: Tensor, c: Tensor) -> None:
    """The same of (parts, R, C), of any strides, in c (R, C), contiguous."""
    parts, R, C = sums.shape
    launch(
        add_parts_kernel, (triton.cdiv(R * C, 256),), sums, c, R * C, C, *sums.stride(),
        PARTS=parts, FLAT=False, BLOCK=256, num_warps=4,
    )  # fmt: skip
