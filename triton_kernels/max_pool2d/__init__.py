"""Max pooling in Triton: one program computes some pixels of the output, and a block of their channels."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_max_pool2d
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
ELEMENTS = 2**15 if INTERPRET else 2048  # elements of a program
MOST_CHANNELS = 256


@triton.jit
def max_pool2d_kernel(
    x_ptr, out_ptr, pixels, H, W, C, P, Q, R, S, STRIDE, PADDING,
    stride_xn, stride_xh, stride_xw, stride_xc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes [BLOCK_M, BLOCK_N] of (n p q, c): the window slides over the pixels of the images.

    Taps outside the image are minus infinity. Channels are neighbours in memory, so that a load reads whole lines.
    """
    tiles_n = tl.cdiv(C, BLOCK_N)
    offs_m = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    top, left = offs_m // Q % P * STRIDE - PADDING, offs_m % Q * STRIDE - PADDING
    x_ptrs = x_ptr + (offs_m // (P * Q)).to(tl.int64)[:, None] * stride_xn + offs_n.to(tl.int64)[None, :] * stride_xc

    largest = tl.full((BLOCK_M, BLOCK_N), float("-inf"), dtype=tl.float32)
    for r in range(R):
        for s in range(S):
            h, w = top + r, left + s
            inside = (offs_m < pixels) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x_offs = h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw
            mask = inside[:, None] & (offs_n < C)[None, :]
            x = tl.load(x_ptrs + x_offs[:, None], mask=mask, other=float("-inf")).to(tl.float32)
            largest = tl.maximum(largest, x, propagate_nan=tl.PropagateNan.ALL)

    out_ptrs = out_ptr + offs_m.to(tl.int64)[:, None] * C + offs_n[None, :]
    tl.store(out_ptrs, largest, mask=(offs_m < pixels)[:, None] & (offs_n < C)[None, :])


@kept
def max_pool2d(
    x: Float[Tensor, "N H W C"], *, window: tuple[int, int], stride: int = 1, padding: int = 0
) -> Float[Tensor, "N P Q C"]:
    """y[n, p, q, c] = max over r < R, s < S of x[n, p stride + r - padding, q stride + s - padding, c], inside x.

    Shapes: x (N, H, W, C), any strides; window (R, S), with padding at most half of it. The output is contiguous.
    Dtypes: float32, float16, bfloat16; a result is one of the inputs. NaN is larger than all numbers.
    Tail: loads are masked outside the image and where a block overhangs. Offsets are int64.
    Errors: ValueError for other shapes, windows, dtypes or devices; NotImplementedError for 2^31 - 2^15 pixels or more.
    Source: the definition.
    """
    P, Q = check_max_pool2d(x, window=window, stride=stride, padding=padding)
    N, H, W, C = x.shape
    pixels = N * P * Q
    if pixels >= 2**31 - 2**15:
        raise NotImplementedError(f"max_pool2d: pixels must be below 2^31 - 2^15; got {pixels} of {tuple(x.shape)}")
    out = empty_output((N, P, Q, C), x.dtype, x.device)
    if out.numel() > 0:
        BLOCK_N = min(triton.next_power_of_2(C), MOST_CHANNELS)
        BLOCK_M = ELEMENTS // BLOCK_N
        with device_of(x):
            launch(
                max_pool2d_kernel, (triton.cdiv(pixels, BLOCK_M) * triton.cdiv(C, BLOCK_N),),
                x, out, pixels, H, W, C, P, Q, *window, stride, padding, *x.stride(), BLOCK_M, BLOCK_N,
            )  # fmt: skip
    return finished_output(out, x.dtype)
