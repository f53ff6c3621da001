"""Sigmoid in Triton: adds a shorter exponential and reciprocal to the plain kernel, so that memory bandwidth is the
limit."""

from math import prod

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.sigmoid import sigmoid_of
from triton_kernels._runtime.contract import check_elementwise
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
LARGE_BYTES = 2**26  # contiguous inputs from this size on have far more programs than run at once
BLOCK_BYTES = (2**18, 2**18) if INTERPRET else (8192, 2048)  # per program: small, large contiguous inputs
TILE = (256, 256) if INTERPRET else (64, 64)  # (BLOCK_M, BLOCK_N) of strided inputs
NUM_WARPS = 4


@triton.jit(do_not_specialize=["N"])
def fast_exponential_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program computes BLOCK consecutive elements. Only the last program masks."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + start + offs
    out_ptrs = out_ptr + start + offs
    if start + BLOCK <= N:
        tl.store(out_ptrs, sigmoid_of(tl.load(x_ptrs)))
    else:
        mask = offs < (N - start).to(tl.int32)
        tl.store(out_ptrs, sigmoid_of(tl.load(x_ptrs, mask=mask)), mask=mask)


@triton.jit
def strided_fast_exponential_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_om,
    batch_shape, batch_stride_x, batch_stride_out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one tile, [BLOCK_M, BLOCK_N], of one matrix of a batch with any number of dimensions.

    It reads the input along the contiguous axis of x and converts the tile to the layout of the output through shared
    memory.
    """
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_m = tl.cdiv(M, BLOCK_M)
    start_n = (pid % tiles_n).to(tl.int64) * BLOCK_N
    start_m = (pid // tiles_n % tiles_m).to(tl.int64) * BLOCK_M
    batch = pid // tiles_n // tiles_m
    for d in tl.static_range(len(batch_shape)):
        index = (batch % batch_shape[d]).to(tl.int64)
        batch = batch // batch_shape[d]
        x_ptr += index * batch_stride_x[d]
        out_ptr += index * batch_stride_out[d]

    offs_m = start_m + tl.arange(0, BLOCK_M)[:, None]
    offs_n = start_n + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n * stride_xn, mask=mask)
    tl.store(out_ptr + offs_m * stride_om + offs_n, sigmoid_of(x), mask=mask)


def config(x: Tensor) -> str:
    """The kernel that `sigmoid` runs: `fast_exponential`, or `strided_fast_exponential` if x is not contiguous."""
    return "fast_exponential" if x.is_contiguous() else "strided_fast_exponential"


@kept
def sigmoid(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """out = 1 / (1 + exp(-x)), elementwise, by the functions of `_common/sigmoid.py`.

    Shapes: any shape and strides. The output is contiguous.
    Dtypes: float32 (within 1.96 ulp, subnormal results included), float16, bfloat16 (float32 inside, rounded once).
    Tail: programs at the edge are masked. Offsets are int64, so x may have more than 2**31 elements.
    Errors: ValueError for other dtypes or devices.
    Source: Cody and Waite's argument reduction; Markstein's correction of a reciprocal by its residual.
    """
    check_elementwise("sigmoid", x)
    out = empty_output(x.shape, x.dtype, x.device)
    if x.numel() > 0:
        with device_of(x):
            (_launch_contiguous if x.is_contiguous() else _launch_strided)(x, out)
    return finished_output(out, x.dtype)


def _launch_contiguous(x: Tensor, out: Tensor) -> None:
    N = x.numel()
    BLOCK = BLOCK_BYTES[N * x.element_size() >= LARGE_BYTES] // x.element_size()
    launch(fast_exponential_kernel, (triton.cdiv(N, BLOCK),), x, out, N, BLOCK, num_warps=NUM_WARPS)


def _launch_strided(x: Tensor, out: Tensor) -> None:
    """Tiles span the contiguous dimension of out and x's dimension of smallest stride; the others are the batch."""
    dims: list[tuple[int, int, int]] = []  # (size, stride in x, stride in out), adjacent dimensions merged
    for size, stride_x, stride_out in zip(x.shape, x.stride(), out.stride(), strict=True):
        if dims and dims[-1][1] == size * stride_x:
            dims[-1] = (dims[-1][0] * size, stride_x, stride_out)
        elif size > 1:
            dims.append((size, stride_x, stride_out))
    *dims, (N, stride_xn, _) = dims
    M, stride_xm, stride_om = dims.pop(min(range(len(dims)), key=lambda d: dims[d][1])) if dims else (1, 0, 0)
    batch_shape, batch_stride_x, batch_stride_out = zip(*dims or [(1, 0, 0)], strict=True)
    BLOCK_M, BLOCK_N = TILE
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N) * prod(batch_shape),)
    launch(
        strided_fast_exponential_kernel, grid,
        x, out, M, N, stride_xm, stride_xn, stride_om,
        batch_shape, batch_stride_x, batch_stride_out, BLOCK_M, BLOCK_N, num_warps=NUM_WARPS,
    )  # fmt: skip
