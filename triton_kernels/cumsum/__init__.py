"""Prefix sums of rows in Triton: one program adds whole rows, one block of columns after the other."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.rows import LONGEST, blocks
from triton_kernels._runtime.contract import check_rows
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True


@triton.jit
def cumsum_kernel(x_ptr, y_ptr, M, N, stride_xm, stride_xn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """One program computes BLOCK_M rows in blocks [BLOCK_M, BLOCK_N]; `before` is the sum of earlier blocks."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    before = tl.zeros((BLOCK_M, 1), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        mask = (offs_m < M) & (offs < N)
        x = tl.load(x_ptr + offs_m * stride_xm + offs * stride_xn, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + offs_m * N + offs, before + tl.cumsum(x, 1), mask=mask)
        before += tl.sum(x, 1)[:, None]


@kept
def cumsum(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i, j] = sum over k <= j of x[i, k].

    Shapes: x (M, N), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: columns beyond N count as 0. Offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices.
    """
    check_rows("cumsum", x)
    M, N = x.shape
    y = empty_output((M, N), x.dtype, x.device)
    if y.numel() > 0:
        block = blocks(N)
        columns, warps = min(block.columns, LONGEST // 2), min(2 * block.warps, 32)  # a scan takes more registers
        with device_of(x):
            launch(
                cumsum_kernel, block.grid(M), x, y, M, N, *x.stride(), block.rows, columns, num_warps=warps
            )  # fmt: skip
    return finished_output(y, x.dtype)
