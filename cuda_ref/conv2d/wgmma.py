"""Convolution of images in CUDA on Hopper's tensor cores: adds TMA's im2col mode, which reads the rows of the implicit
matrix product, and the specialized warps and persistent clusters of matmul, to mma.py."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_conv2d
from cuda_ref._runtime.device import multiprocessors
from cuda_ref._runtime.kept import kept
from cuda_ref.conv2d._images import check_sizes, copies, taps_and_channels, views

REQUIRES = "sm_90"
THIN, TALL, WIDE, TRIO, ALONE = range(5)
"""Tiles of wgmma.cu."""
NAMES = ("THIN", "TALL", "WIDE", "TRIO", "ALONE")
TILES = {WIDE: (128, 256, 1.0), TALL: (256, 128, 1.02), TRIO: (192, 128, 1.05), THIN: (256, 64, 1.45)}
"""Rows, columns, and the time per unit of work relative to WIDE (H200, 3 x 3 of ResNet-50)."""
CLUSTER = 2  # blocks per cluster, with successive rows of tiles
STEP_BYTES = 128  # bytes of channels per step of the sum
FEW_STEPS = 2
"""Most steps of a sum for ALONE, where memory is the limit: blocks keep their weights and need no cluster."""


@kept
def conv2d(
    x: Float[Tensor, "N H W C"],
    weight: Float[Tensor, "K R S C"],
    *,
    stride: int = 1,
    padding: int = 0,
    precision: str = "ieee",
) -> Float[Tensor, "N P Q K"]:
    """out[n, p, q, k] = sum over r, s, c of x[n, p stride + r - padding, q stride + s - padding, c] weight[k, r, s, c].

    Shapes: x (N, H, W, C), weight (K, R, S, C), R and S up to 128, padding up to 127, stride up to 8; the output is
    contiguous.
    Strides: any. TMA reads contiguous channels in multiples of 16 bytes. Other images, and those with few channels, are
    copied first; this takes their size in memory.
    Dtypes: float16, bfloat16, with sums in float32, rounded once at the end. float32 with precision "tf32": TMA rounds
    factors to tf32, sums are float32.
    Tail: TMA writes zeros for pixels and channels beyond the ends, and does not write elements that overhang the
    output.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for precision "ieee" of float32, for larger sizes, and on other devices; build.CudaError if the
    launch fails.
    Source: see wgmma.cu.
    """
    P, Q = check_conv2d(x, weight, stride=stride, padding=padding, precision=precision)
    (N, H, _, _), (K, R, S, _) = x.shape, weight.shape
    check_sizes(x, weight, P, Q)
    if x.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError('conv2d: tensor cores multiply float32 in precision "tf32" only; got "ieee"')
    if max(R, S) > 128 or padding > 127 or stride > 8:
        raise NotImplementedError(
            "conv2d: TMA takes R and S up to 128, padding up to 127 and stride up to 8; "
            f"got R={R}, S={S}, padding={padding}, stride={stride}"
        )
    if x.numel() == 0 or weight.numel() == 0:
        return x.new_zeros(N, P, Q, K)
    of = views(x, weight, Q, stride, padding)
    tile = choose(x, R * of.S, of.channels, N * P * Q, K)
    out = x.new_empty(N, P, Q, K)
    build.launch(
        "conv2d/wgmma", "conv2d_wgmma", x.device,
        of.x, of.weight, out, N, H, of.width, of.channels, *of.x_pitch, K, R, of.S, *of.weight_pitch, P, Q,
        stride, of.stride, padding, of.padding, tile, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out


def config(x: Tensor, weight: Tensor, *, stride: int = 1, padding: int = 0, precision: str = "ieee") -> str:
    """The tile, preceded by the copies of images or weights, as in `pad_images; wgmma TALL`; empty without work."""
    P, Q = check_conv2d(x, weight, stride=stride, padding=padding, precision=precision)
    if x.numel() == 0 or weight.numel() == 0:
        return ""
    S, channels = taps_and_channels(x, weight, stride)
    tile = choose(x, weight.shape[1] * S, channels, x.shape[0] * P * Q, weight.shape[0])
    return f"{copies(x, weight, stride)}wgmma {NAMES[tile]}"


def choose(x: Tensor, taps: int, channels: int, pixels: int, K: int) -> int:
    """The tile for a sum over `taps` taps with `channels` channels, for all pixels and K channels of the output."""
    tile = best_tile(pixels, K, multiprocessors(x.device))
    steps = taps * -(-channels * x.element_size() // STEP_BYTES)
    return ALONE if tile == WIDE and steps <= FEW_STEPS and x.element_size() == 2 else tile


def best_tile(pixels: int, K: int, processors: int) -> int:
    """The tile whose waves of clusters take the least time."""

    def time(tile: int) -> float:
        rows, columns, slowness = TILES[tile]
        clusters = -(-pixels // (CLUSTER * rows)) * -(-K // columns)
        return -(-clusters // max(1, processors // CLUSTER)) * rows * columns * slowness

    return min(TILES, key=time)
