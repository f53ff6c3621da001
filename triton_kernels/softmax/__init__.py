"""Softmax of each row of a matrix in Triton. A program holds a row in registers, or reads it in blocks."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.rows import blocks
from triton_kernels._runtime.contract import check_rows
from triton_kernels._runtime.interpreter import empty_output, finished_output, to_working, working_type
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)


@triton.jit
def softmax_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M whole rows, [BLOCK_M, BLOCK_N], which it reads once."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    x_ptrs = x_ptr + offs_m * stride_xm + offs_n.to(tl.int64) * stride_xn
    x = to_working(tl.load(x_ptrs, mask=mask, other=float("-inf")))
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(out_ptr + offs_m * N + offs_n, e / tl.sum(e, 1)[:, None], mask=mask)


@triton.jit
def long_softmax_kernel(x_ptr, out_ptr, N, stride_xm, stride_xn, BLOCK_N: tl.constexpr):
    """One program computes one row in blocks of BLOCK_N. It reads the row twice.

    m: largest element so far. l: sum of exp(x - m), rescaled where m grows. base: m, or 0 while all elements are minus
    infinity, so that exp gives 0 and not NaN.
    """
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    kind: tl.constexpr = working_type(x_ptr.dtype)
    m = tl.full((1,), float("-inf"), kind)
    base = tl.zeros((1,), kind)
    l = tl.zeros((1,), kind)  # noqa: E741
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        x = to_working(tl.load(x_ptr + row * stride_xm + offs * stride_xn, mask=offs < N, other=float("-inf")))
        previous = m
        m = tl.maximum(m, tl.max(x, 0))
        base = tl.where(m == float("-inf"), 0.0, m)
        l = l * tl.exp(previous - base) + tl.sum(tl.exp(x - base), 0)  # noqa: E741
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        x = to_working(tl.load(x_ptr + row * stride_xm + offs * stride_xn, mask=offs < N))
        tl.store(out_ptr + row * N + offs, tl.exp(x - base) / l, mask=offs < N)


@kept
def softmax(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """out[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]).

    Shapes: x (M, N), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: columns beyond N are minus infinity. Offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018, for rows in blocks.
    """
    check_rows("softmax", x, float64=True)
    M, N = x.shape
    out = empty_output((M, N), x.dtype, x.device)
    if out.numel() > 0:
        block = blocks(N)
        with device_of(x):
            if block.holds_row:
                launch(
                    softmax_kernel, block.grid(M),
                    x, out, M, N, *x.stride(), block.rows, block.columns, num_warps=block.warps,
                )  # fmt: skip
            else:
                launch(long_softmax_kernel, (M,), x, out, N, *x.stride(), block.columns, num_warps=block.warps)
    return finished_output(out, x.dtype)
