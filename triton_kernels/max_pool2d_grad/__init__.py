"""The gradient of max pooling in Triton: one program gathers the gradients of some pixels, and a block of channels."""

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


@triton.jit
def max_pool2d_grad_kernel(
    x_ptr, dy_ptr, dx_ptr, pixels, H, W, C, P, Q, R, S, STRIDE, PADDING,
    stride_xn, stride_xh, stride_xw, stride_xc, stride_yn, stride_yp, stride_yq, stride_yc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes [BLOCK_M, BLOCK_N] of dx as (n h w, c).

    It visits the windows that hold a pixel, and in each compares the pixel with all others: a larger one, or an equal
    one before it, wins the window. No window is written to by two programs, so that no atomic addition is needed.
    """
    tiles_n = tl.cdiv(C, BLOCK_N)
    offs_m = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    n, own_h, own_w = (offs_m // (H * W)).to(tl.int64), offs_m // W % H, offs_m % W
    mask = (offs_m < pixels)[:, None] & (offs_n < C)[None, :]
    x_ptrs = x_ptr + n[:, None] * stride_xn + offs_n.to(tl.int64)[None, :] * stride_xc
    y_ptrs = dy_ptr + n[:, None] * stride_yn + offs_n.to(tl.int64)[None, :] * stride_yc
    own = tl.load(
        x_ptrs + (own_h.to(tl.int64) * stride_xh + own_w.to(tl.int64) * stride_xw)[:, None], mask=mask, other=0.0
    ).to(tl.float32)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i in range(tl.cdiv(R, STRIDE)):
        p = (own_h + PADDING) // STRIDE - i
        top = p * STRIDE - PADDING
        for j in range(tl.cdiv(S, STRIDE)):
            q = (own_w + PADDING) // STRIDE - j
            left = q * STRIDE - PADDING
            holds = (p >= 0) & (p < P) & (own_h < top + R) & (q >= 0) & (q < Q) & (own_w < left + S)
            wins = holds[:, None] & mask
            for tap in range(R * S):
                h, w = top + tap // S, left + tap % S
                inside = (h >= 0) & (h < H) & (w >= 0) & (w < W) & holds
                x_offs = h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw
                x = tl.load(x_ptrs + x_offs[:, None], mask=inside[:, None] & mask, other=float("-inf")).to(tl.float32)
                before = inside & ((h < own_h) | ((h == own_h) & (w < own_w)))
                wins = wins & ~(x > own) & ~((x == own) & before[:, None])
            y_offs = p.to(tl.int64) * stride_yp + q.to(tl.int64) * stride_yq
            acc += tl.load(y_ptrs + y_offs[:, None], mask=wins, other=0.0).to(tl.float32)

    out_ptrs = dx_ptr + offs_m.to(tl.int64)[:, None] * C + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=mask)


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

    Shapes: x (N, H, W, C), dy (N, P, Q, C), any strides; window (R, S), with padding at most half of it. dx is
    contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; sums in float32, rounded once.
    Tail: loads are masked outside the image and where a block overhangs. Offsets are int64.
    Errors: ValueError for other shapes, windows, dtypes or devices; NotImplementedError for 2^31 - 2^15 pixels or more.
    Source: the definition.
    """
    P, Q = check_max_pool2d_grad(x, dy, window=window, stride=stride, padding=padding)
    N, H, W, C = x.shape
    pixels = N * H * W
    if pixels >= 2**31 - 2**15:
        raise NotImplementedError(f"max_pool2d_grad: pixels must be below 2^31 - 2^15; got {tuple(x.shape)}")
    dx = empty_output((N, H, W, C), x.dtype, x.device)
    if dx.numel() > 0:
        BLOCK_N = min(triton.next_power_of_2(C), MOST_CHANNELS)
        BLOCK_M = ELEMENTS // BLOCK_N
        with device_of(x):
            launch(
                max_pool2d_grad_kernel, (triton.cdiv(pixels, BLOCK_M) * triton.cdiv(C, BLOCK_N),),
                x, dy, dx, pixels, H, W, C, P, Q, *window, stride, padding, *x.stride(), *dy.stride(),
                BLOCK_M, BLOCK_N,
            )  # fmt: skip
    return finished_output(dx, x.dtype)
