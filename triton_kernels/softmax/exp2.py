"""Softmax of each row in Triton: adds exponentials to base 2, for 16-bit results, to the plain kernel.

Rows in blocks also hint to the L2 cache which data is read again, and in 16 bits load blocks ahead of their use.
"""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.rows import blocks
from triton_kernels._runtime.contract import check_rows
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True


@triton.jit
def exponential(x, WIDE: tl.constexpr):
    """exp(x) for x <= 0; for 16-bit results times 2**16, because the hardware's 2**y gives 0 for subnormal results.

    WIDE: float32 results, which need the exact argument. Adding 16 to it costs a relative error of 2**-20.
    """
    if WIDE:
        return tl.exp(x)
    else:
        return tl.exp2(tl.fma(x, 1.4426950408889634, 16.0))


@triton.jit
def softmax_exp2_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M whole rows, [BLOCK_M, BLOCK_N], which it reads once."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n.to(tl.int64) * stride_xn, mask=mask, other=float("-inf"))
    WIDE: tl.constexpr = x.dtype == tl.float32
    x = x.to(tl.float32)
    e = exponential(x - tl.max(x, 1)[:, None], WIDE)
    tl.store(out_ptr + offs_m * N + offs_n, e * (1.0 / tl.sum(e, 1))[:, None], mask=mask)


@triton.jit
def long_softmax_exp2_kernel(x_ptr, out_ptr, N, stride_xm, stride_xn, BLOCK_N: tl.constexpr):
    """One program computes one row in blocks of BLOCK_N. It reads the row twice, the second time from the L2 cache.

    m: largest element so far. l: sum of exp(x - m), rescaled where m grows. base: m, or 0 while all elements are minus
    infinity, so that exp gives 0 and not NaN.
    """
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    out_ptr += row * N
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    WIDE: tl.constexpr = x_ptr.dtype.element_ty == tl.float32
    STAGES: tl.constexpr = 1 if WIDE else 3  # shared memory holds two blocks of 16-bit elements ahead
    one = exponential(tl.zeros((1,), tl.float32), WIDE)

    m = tl.full((1,), float("-inf"), tl.float32)
    base = tl.zeros((1,), tl.float32)
    l = tl.zeros((1,), tl.float32)  # noqa: E741
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        offs = start + offs_n
        x = tl.load(x_ptr + offs * stride_xn, mask=offs < N, other=float("-inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        previous = m
        m = tl.maximum(m, tl.max(x, 0))
        base = tl.where(m == float("-inf"), 0.0, m)
        l = l * (exponential(previous - base, WIDE) / one) + tl.sum(exponential(x - base, WIDE), 0)  # noqa: E741
    scale = 1.0 / l
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        offs = start + offs_n
        x = tl.load(x_ptr + offs * stride_xn, mask=offs < N, eviction_policy="evict_first").to(tl.float32)
        tl.store(out_ptr + offs, exponential(x - base, WIDE) * scale, mask=offs < N, eviction_policy="evict_first")


@kept
def softmax(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """out[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]).

    Shapes: x (M, N), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: columns beyond N are minus infinity. Offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018, for rows in blocks.
    """
    check_rows("softmax", x)
    M, N = x.shape
    out = empty_output((M, N), x.dtype, x.device)
    if out.numel() > 0:
        block = blocks(N)
        with device_of(x):
            if block.holds_row:
                launch(
                    softmax_exp2_kernel, block.grid(M),
                    x, out, M, N, *x.stride(), block.rows, block.columns, num_warps=block.warps,
                )  # fmt: skip
            else:
                launch(long_softmax_exp2_kernel, (M,), x, out, N, *x.stride(), block.columns, num_warps=block.warps)
    return finished_output(out, x.dtype)
