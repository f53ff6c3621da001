"""Sigmoid in Triton: float32 accurate to two units in the last place, and still memory-bound."""

from math import prod

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_elementwise
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
LARGE_BYTES = 2**26  # of a dense input: from here on there are far more programs than the device runs at once
BLOCK_BYTES = (2**18, 2**18) if INTERPRET else (8192, 2048)  # per program: small, large dense inputs
TILE = (256, 256) if INTERPRET else (64, 64)  # (BLOCK_M, BLOCK_N) of strided inputs
NUM_WARPS = 4


@triton.jit
def reciprocal(x):
    """1 / x within one ulp, for normal x and 1 / x: one instruction, where 1.0 / x compiles to six."""
    if INTERPRET:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def sigmoid_float32(x):
    """1 / (1 + exp(-x)) within 1.96 ulp (measured over every float32), in twenty instructions.

    exp(-x) = 2**k * exp(f), |f| <= ln(2) / 2 (Cody and Waite); ln(2) is split so that k * (its high part) is exact.
    Both terms of the denominator carry a factor of 2**-32: exp(-x) alone overflows where the result is not yet 0.
    """
    # Products with -1.0 become sign bits of operands; Triton 3.6 compiles -x as 0 - x, an instruction of its own.
    x = tl.clamp(x, -104.0, 30.0, propagate_nan=tl.PropagateNan.ALL)  # beyond: 0 or 1
    shifted = tl.fma(x, -1.4426950216293335, 12582912.0)  # 1.5 * 2**23: rounds to k, which is left in the low bits
    k = shifted - 12582912.0
    f = tl.fma(k, -0.693145751953125, x * -1.0)
    f = tl.fma(k, -1.428606765330187e-06, f)
    p = tl.fma(f, 0.0013814540579915047, 0.00836874544620514)  # exp(f) - 1 = f + f**2 p(f), minimax of degree 4
    p = tl.fma(p, f, 0.04166838899254799)
    p = tl.fma(p, f, 0.1666652113199234)
    p = tl.fma(p, f, 0.4999999403953552)
    p = tl.fma(f * f, p, f)
    scale = ((shifted.to(tl.int32, bitcast=True) << 23) + ((127 - 32) << 23)).to(tl.float32, bitcast=True)
    e = tl.fma(scale, p, scale)  # 2**-32 * exp(-x)

    # One Newton step with the residual of the unrounded denominator. Only the last product can be subnormal.
    r = reciprocal(e + 2.0**-32)
    residual = tl.fma(e * -1.0, r, tl.fma(r, -(2.0**-32), 1.0))
    return tl.fma(r, residual, r) * 2.0**-32


@triton.jit
def sigmoid_16_bit(x):
    """1 / (1 + exp(-x)) with relative error 2**-17, below the rounding of 16-bit types, in five instructions.

    The factor of 2**-16 in the denominator keeps it from overflowing, and its reciprocal from being flushed to zero,
    until the result is below bfloat16's smallest subnormal.
    """
    return reciprocal(tl.exp2(tl.fma(x, -1.4426950216293335, -16.0)) + 2.0**-16) * 2.0**-16


@triton.jit
def sigmoid_of(x):
    """Sigmoid of a block, by the formula for its dtype."""
    if x.dtype == tl.float32:
        return sigmoid_float32(x)
    else:
        return sigmoid_16_bit(x.to(tl.float32))


@triton.jit(do_not_specialize=["N"])
def dense_sigmoid_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program computes BLOCK consecutive elements; only the last one masks."""
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
def strided_sigmoid_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_om,
    batch_shape, batch_stride_x, batch_stride_out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one tile, [BLOCK_M, BLOCK_N], of one matrix of a batch with any number of dimensions.

    The input is read along its contiguous axis and converted to the output's layout through shared memory.
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


@kept
def sigmoid(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """out = 1 / (1 + exp(-x)), elementwise.

    Shapes: any shape and strides; the output is contiguous.
    Dtypes: float32 (within 1.96 ulp, subnormal results included), float16, bfloat16 (float32 inside, rounded once).
    Tail: programs at the edge mask; offsets are int64, so x may have more than 2**31 elements.
    Errors: ValueError for other dtypes or devices.
    Source: Cody and Waite's argument reduction; Markstein's correction of a reciprocal by its residual.
    """
    check_elementwise("sigmoid", x)
    out = empty_output(x.shape, x.dtype, x.device)
    if x.numel() > 0:
        with device_of(x):
            (_launch_dense if x.is_contiguous() else _launch_strided)(x, out)
    return finished_output(out, x.dtype)


def _launch_dense(x: Tensor, out: Tensor) -> None:
    N = x.numel()
    BLOCK = BLOCK_BYTES[N * x.element_size() >= LARGE_BYTES] // x.element_size()
    launch(dense_sigmoid_kernel, (triton.cdiv(N, BLOCK),), x, out, N, BLOCK, num_warps=NUM_WARPS)


def _launch_strided(x: Tensor, out: Tensor) -> None:
    """Tiles span the output's contiguous dimension and x's dimension of smallest stride; the others are batch."""
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
        strided_sigmoid_kernel, grid,
        x, out, M, N, stride_xm, stride_xn, stride_om,
        batch_shape, batch_stride_x, batch_stride_out, BLOCK_M, BLOCK_N, num_warps=NUM_WARPS,
    )  # fmt: skip
