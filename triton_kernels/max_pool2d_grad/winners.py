"""The gradient of max pooling in Triton: adds a kernel that finds each window's winner once to the plain kernel."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_max_pool2d_grad
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
ELEMENTS = 2**15 if INTERPRET else 1024  # elements of a program
MOST_CHANNELS = 256
MOST_PIXELS = 64  # most pixels of a window: their loop is unrolled, so that their loads overlap


@triton.jit
def winners_kernel(
    x_ptr, winners_ptr, windows, H, W, C, P, Q, stride_xn, stride_xh, stride_xw, stride_xc,
    R: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program finds the numbers of the first largest pixels of [BLOCK_M, BLOCK_N] of the windows, (n p q, c).

    Beyond the image it reads the nearest pixel, which lies in the window too: the first largest one stays the same.
    """
    tiles_n = tl.cdiv(C, BLOCK_N)
    offs_m = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    n, top, left = (offs_m // (P * Q)).to(tl.int64), offs_m // Q % P * STRIDE - PADDING, offs_m % Q * STRIDE - PADDING
    mask = (offs_m < windows)[:, None] & (offs_n < C)[None, :]
    x_ptrs = x_ptr + n[:, None] * stride_xn + offs_n.to(tl.int64)[None, :] * stride_xc
    largest = tl.full((BLOCK_M, BLOCK_N), float("-inf"), tl.float32)
    winner = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for tap in tl.static_range(R * S):
        h = tl.minimum(tl.maximum(top + tap // S, 0), H - 1)
        w = tl.minimum(tl.maximum(left + tap % S, 0), W - 1)
        x_offs = h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw
        x = tl.load(x_ptrs + x_offs[:, None], mask=mask, other=0.0).to(tl.float32)
        larger = (x > largest) | (tap == 0)
        largest = tl.where(larger, x, largest)
        winner = tl.where(larger, ((h - top) * S + w - left)[:, None], winner)
    out_ptrs = winners_ptr + offs_m.to(tl.int64)[:, None] * C + offs_n[None, :]
    tl.store(out_ptrs, winner.to(tl.int8), mask=mask)


@triton.jit
def gradients_kernel(
    winners_ptr, dy_ptr, dx_ptr, pixels, H, W, C, P, Q, stride_yn, stride_yp, stride_yq, stride_yc,
    R: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program adds the dy of the windows that [BLOCK_M, BLOCK_N] of the pixels win, (n h w, c)."""
    tiles_n = tl.cdiv(C, BLOCK_N)
    offs_m = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    n, h, w = (offs_m // (H * W)).to(tl.int64), offs_m // W % H + PADDING, offs_m % W + PADDING
    mask = (offs_m < pixels)[:, None] & (offs_n < C)[None, :]
    y_ptrs = dy_ptr + n[:, None] * stride_yn + offs_n.to(tl.int64)[None, :] * stride_yc
    winner_ptrs = winners_ptr + n[:, None] * P * Q * C + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i in tl.static_range((R + STRIDE - 1) // STRIDE):
        p = h // STRIDE - i
        for j in tl.static_range((S + STRIDE - 1) // STRIDE):
            q = w // STRIDE - j
            holds = (p >= 0) & (p < P) & (h < p * STRIDE + R) & (q >= 0) & (q < Q) & (w < q * STRIDE + S)
            window = holds[:, None] & mask
            winner = tl.load(winner_ptrs + (p.to(tl.int64) * Q + q)[:, None] * C, mask=window, other=-1)
            y_offs = p.to(tl.int64) * stride_yp + q.to(tl.int64) * stride_yq
            dy = tl.load(y_ptrs + y_offs[:, None], mask=window, other=0.0).to(tl.float32)
            number = (h - p * STRIDE) * S + w - q * STRIDE
            acc += tl.where(winner.to(tl.int32) == number[:, None], dy, 0.0)
    tl.store(dx_ptr + offs_m.to(tl.int64)[:, None] * C + offs_n[None, :], acc, mask=mask)


@kept
def max_pool2d_grad(
    x: Float[Tensor, "N H W C"],
    dy: Float[Tensor, "N P Q C"],
    *,
    window: tuple[int, int],
    stride: int = 1,
    padding: int = 0,
) -> Float[Tensor, "N H W C"]:
    """dx[n, h, w, c]: the sum of dy[n, p, q, c] over the windows whose largest pixel is x[n, h, w, c].

    If pixels of a window are equal, the first one counts, row by row. A NaN in x is not specified.

    Shapes: x (N, H, W, C), dy (N, P, Q, C), any strides; window (R, S) of at most 64 pixels, with padding at most half
    of it. dx is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; sums in float32, rounded once.
    Memory: a byte for each element of dy.
    Tail: loads are masked where a block overhangs. Offsets are int64.
    Errors: ValueError for other shapes, windows, dtypes or devices; NotImplementedError for larger windows, and for
    2^31 - 2^15 pixels or more.
    Source: the definition.
    """
    P, Q = check_max_pool2d_grad(x, dy, window=window, stride=stride, padding=padding)
    N, H, W, C = x.shape
    pixels, windows = N * H * W, N * P * Q
    if window[0] * window[1] > MOST_PIXELS:
        raise NotImplementedError(f"max_pool2d_grad: windows must have at most {MOST_PIXELS} pixels; got {window}")
    if max(pixels, windows) >= 2**31 - 2**15:
        raise NotImplementedError(f"max_pool2d_grad: pixels must be below 2^31 - 2^15; got {tuple(x.shape)}")
    dx = empty_output((N, H, W, C), x.dtype, x.device)
    if dx.numel() > 0:
        winners = torch.empty((N, P, Q, C), dtype=torch.int8, device=x.device)
        BLOCK_N = min(triton.next_power_of_2(C), MOST_CHANNELS)
        BLOCK_M = ELEMENTS // BLOCK_N
        across = triton.cdiv(C, BLOCK_N)
        with device_of(x):
            launch(
                winners_kernel, (triton.cdiv(windows, BLOCK_M) * across,),
                x, winners, windows, H, W, C, P, Q, *x.stride(), *window, stride, padding, BLOCK_M, BLOCK_N,
            )  # fmt: skip
            launch(
                gradients_kernel, (triton.cdiv(pixels, BLOCK_M) * across,),
                winners, dy, dx, pixels, H, W, C, P, Q, *dy.stride(), *window, stride, padding, BLOCK_M, BLOCK_N,
            )  # fmt: skip
    return finished_output(dx, x.dtype)
