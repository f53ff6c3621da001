"""Convolution of images in Triton: an implicit matrix product, whose left operand is gathered from the images."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.conv2d._output import new_output

DETERMINISTIC = True


@triton.jit
def conv2d_gather_kernel(
    x_ptr, weight_ptr, out_ptr, pixels, H, W, P, Q, K, STRIDE, PADDING,
    stride_xn, stride_xh, stride_xw, stride_xc, stride_wk, stride_wr, stride_ws, stride_wc,
    C: tl.constexpr, R: tl.constexpr, S: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes a tile of the output, [BLOCK_M, BLOCK_N] of (n p q, k), in float32 registers.

    Each step multiplies [BLOCK_M, BLOCK_K] of the pixels under the window by [BLOCK_K, BLOCK_N] of the weights. A
    window has R S C factors: factor j = (r S + s) C + c is channel c of the tap (r, s). Pixels in the padding are zero.
    """
    tiles_n = tl.cdiv(K, BLOCK_N)
    offs_m = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    top = (offs_m // Q % P * STRIDE - PADDING)[:, None]
    left = (offs_m % Q * STRIDE - PADDING)[:, None]
    x_ptrs = x_ptr + (offs_m // (P * Q)).to(tl.int64)[:, None] * stride_xn
    w_ptrs = weight_ptr + offs_n.to(tl.int64)[None, :] * stride_wk

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, R * S * C, BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        c, r, s = j % C, j // (S * C), j // C % S
        h, w = top + r[None, :], left + s[None, :]
        inside = (offs_m < pixels)[:, None] & (j < R * S * C)[None, :] & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        x_offs = h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw + c.to(tl.int64)[None, :] * stride_xc
        w_offs = r.to(tl.int64) * stride_wr + s.to(tl.int64) * stride_ws + c.to(tl.int64) * stride_wc
        a = tl.load(x_ptrs + x_offs, mask=inside, other=0.0)
        b = tl.load(w_ptrs + w_offs[:, None], mask=(j < R * S * C)[:, None] & (offs_n < K)[None, :], other=0.0)
        acc = tl.dot(dot_operand(a), dot_operand(b), acc, input_precision=PRECISION)

    out_ptrs = out_ptr + offs_m.to(tl.int64)[:, None] * K + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=(offs_m < pixels)[:, None] & (offs_n < K)[None, :])


def _tile(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    return triton.Config(tile, num_warps=num_warps, num_stages=2)


CONFIGS = [_tile(128, 128, 32, 8), _tile(128, 64, 32, 8), _tile(64, 64, 32, 4), _tile(64, 16, 32, 4)]

if INTERPRET:  # one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 64, "BLOCK_K": 64}
else:  # timed once per key
    TILE = {}
    KEY = ["pixels", "P", "Q", "K", "STRIDE", "C", "R", "S", "PRECISION"]
    conv2d_gather_kernel = autotune(CONFIGS, KEY)(conv2d_gather_kernel)


@kept
def conv2d(
    x: Float[Tensor, "N H W C"],
    weight: Float[Tensor, "K R S C"],
    *,
    stride: int = 1,
    padding: int = 0,
    precision: str = "ieee",
) -> Float[Tensor, "N P Q K"]:
    """y[n, p, q, k] = sum over r, s, c of x[n, p stride + r - padding, q stride + s - padding, c] weight[k, r, s, c].

    Shapes: x (N, H, W, C), weight (K, R, S, C), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; sums in float32, rounded once at the end.
    Precision: "ieee" multiplies the inputs exactly (float32 without tensor cores); "tf32", for float32 only: the tensor
    cores truncate each factor to 11 significant bits.
    Tail: loads are masked where a tap lies in the padding and where a tile overhangs. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for 2^31 - 256 pixels and
    more.
    Source: implicit GEMM as in cuDNN (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014).
    """
    out, finished = new_output(x, weight, stride, padding, precision)
    if finished:
        return finished_output(out, x.dtype)
    (_, H, W, C), (K, R, S, _) = x.shape, weight.shape
    N, P, Q, _ = out.shape
    pixels = N * P * Q
    with device_of(x):
        launch(
            conv2d_gather_kernel,
            lambda tile: (triton.cdiv(pixels, tile["BLOCK_M"]) * triton.cdiv(K, tile["BLOCK_N"]),),
            x, weight, out, pixels, H, W, P, Q, K, stride, padding, *x.stride(), *weight.stride(),
            C=C, R=R, S=S, PRECISION=precision, **TILE,
        )  # fmt: skip
    return finished_output(out, x.dtype)
