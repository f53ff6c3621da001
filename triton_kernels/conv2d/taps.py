"""Convolution of images in Triton: adds steps over a block of channels of one tap to the plain kernel.

Copies then read contiguous channels, and a mask needs one test per pixel.
"""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.conv2d._configs_taps import CONFIGS, short_list, tuning_space  # noqa: F401
from triton_kernels.conv2d._output import new_output

DETERMINISTIC = True
GROUP_M = 8  # tile rows per group of the tile scheduler
FEW_CHANNELS = 16  # with fewer channels, most of a block of channels would be masked


@triton.jit
def inside_image(h, w, H, W, valid):
    return valid & (h >= 0) & (h < H) & (w >= 0) & (w < W)


@triton.jit
def conv2d_taps_kernel(
    x_ptr, weight_ptr, out_ptr, pixels, H, W, P, Q,
    stride_xn, stride_xh, stride_xw, stride_xc, stride_wk, stride_wr, stride_ws, stride_wc,
    C: tl.constexpr, K: tl.constexpr, R: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr,
    PADDING: tl.constexpr, PRECISION: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes a tile of the output, [BLOCK_M, BLOCK_N] of (n p q, k), in float32 registers.

    Each step multiplies [BLOCK_M, BLOCK_K] by [BLOCK_K, BLOCK_N]: BLOCK_K channels of one tap (r, s), at the pixels
    that the tap reads, with zeros in the padding. If a window has at most 32 taps, each row of the tile has a bit mask
    of the taps that lie in the image. C and K are constants: the compiler divides steps into taps without divisions,
    and omits masks of blocks that do not overhang.
    """
    BITS: tl.constexpr = R * S <= 32
    pid_m, pid_n = grouped_tile_any(tl.program_id(0), tl.cdiv(pixels, BLOCK_M), tl.cdiv(K, BLOCK_N), GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    row = offs_m // Q
    image = row // P
    top = (row - image * P) * STRIDE - PADDING
    left = (offs_m - row * Q) * STRIDE - PADDING
    x_rows = image.to(tl.int64) * stride_xn + top.to(tl.int64) * stride_xh + left.to(tl.int64) * stride_xw
    w_columns = offs_n.to(tl.int64) * stride_wk
    valid_m = offs_m < pixels
    valid_n = offs_n < K

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    blocks: tl.constexpr = (C + BLOCK_K - 1) // BLOCK_K
    if PADDING > 0 and BITS:
        taps = tl.zeros((BLOCK_M,), tl.int32)
        for i in tl.static_range(R * S):
            taps |= inside_image(top + i // S, left + i % S, H, W, valid_m).to(tl.int32) << i
    x_ptrs = x_ptr + x_rows[:, None] + offs_k[None, :].to(tl.int64) * stride_xc
    w_ptrs = weight_ptr + w_columns[None, :] + offs_k[:, None].to(tl.int64) * stride_wc
    for step in range(0, R * S * blocks):
        tap = step // blocks
        first = (step - tap * blocks) * BLOCK_K
        r = tap // S
        s = tap - r * S
        if PADDING == 0:
            inside = valid_m
        elif BITS:
            inside = ((taps >> tap) & 1) != 0
        else:
            inside = inside_image(top + r, left + s, H, W, valid_m)
        a_mask = inside[:, None]
        if C % BLOCK_K != 0:
            a_mask &= offs_k[None, :] < C - first
        c = tl.full((), first, tl.int64)
        x_step = r.to(tl.int64) * stride_xh + s.to(tl.int64) * stride_xw + c * stride_xc
        w_step = r.to(tl.int64) * stride_wr + s.to(tl.int64) * stride_ws + c * stride_wc
        a = tl.load(x_ptrs + x_step, mask=a_mask, other=0.0)
        if C % BLOCK_K == 0 and K % BLOCK_N == 0:
            b = tl.load(w_ptrs + w_step)
        else:
            b_mask = valid_n[None, :] & (offs_k[:, None] < C - first)
            b = tl.load(w_ptrs + w_step, mask=b_mask, other=0.0)
        acc = tl.dot(dot_operand(a), dot_operand(b), acc, input_precision=PRECISION)

    out_ptrs = out_ptr + offs_m[:, None].to(tl.int64) * K + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=valid_m[:, None] & valid_n[None, :])


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 64, "BLOCK_K": 64}
else:  # tuned, or timed once per key and kept in Triton's cache folder
    TILE = {}
    KEY = ["pixels", "C", "K", "P", "Q", "R", "S", "STRIDE", "PRECISION"]
    conv2d_taps_kernel = autotune(CONFIGS, KEY, short_list)(conv2d_taps_kernel)


def covers(x: Tensor, weight: Tensor) -> bool:
    """True if a tap has enough channels to fill a step."""
    (_, R, S, C) = weight.shape
    return C >= FEW_CHANNELS or R * S == 1


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

    Shapes: x (N, H, W, C), weight (K, R, S, C), any strides; fastest if the channels of both are contiguous and a
    multiple of 16 bytes. The output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; sums in float32, rounded once at the end.
    Precision: "ieee" multiplies the inputs exactly (float32 without tensor cores); "tf32", for float32 only: the tensor
    cores truncate each factor to 11 significant bits.
    Tail: loads are masked where a tap lies in the padding and where a tile overhangs. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for fewer than 16 channels
    in a window of several taps, and for 2^31 - 256 pixels and more.
    Source: implicit GEMM as in cuDNN (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014).
    """
    out, finished = new_output(x, weight, stride, padding, precision)
    if finished:
        return finished_output(out, x.dtype)
    if not covers(x, weight):
        raise NotImplementedError(f"conv2d: C must be at least {FEW_CHANNELS}, or R = S = 1; got {tuple(weight.shape)}")
    (_, H, W, C), (K, R, S, _) = x.shape, weight.shape
    N, P, Q, _ = out.shape
    pixels = N * P * Q
    with device_of(x):
        launch(
            conv2d_taps_kernel, lambda tile: (triton.cdiv(pixels, tile["BLOCK_M"]) * triton.cdiv(K, tile["BLOCK_N"]),),
            x, weight, out, pixels, H, W, P, Q, *x.stride(), *weight.stride(),
            C=C, K=K, R=R, S=S, STRIDE=stride, PADDING=padding, PRECISION=precision, GROUP_M=GROUP_M, **TILE,
        )  # fmt: skip
    return finished_output(out, x.dtype)
