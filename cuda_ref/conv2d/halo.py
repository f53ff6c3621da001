"""Convolution of images with few channels in CUDA on Hopper's tensor cores: adds tiles with a halo to wgmma.py, so that
each pixel is loaded once for all taps."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_conv2d
from cuda_ref._runtime.kept import kept
from cuda_ref.conv2d._images import check_16_bit, check_sizes, copies, views

REQUIRES = "sm_90"
MOST_CHANNELS = 64  # 128 bytes: a row of shared memory as TMA swizzles it
SHARED_BYTES = 227 * 1024  # shared memory of a multiprocessor, for one block
WIDTH = 16  # pixels per row of the halo


@kept
def conv2d(
    x: Float[Tensor, "N H W C"],
    weight: Float[Tensor, "K R S C"],
    *,
    stride: int = 1,
    padding: int = 0,
    precision: str = "ieee",
) -> Float[Tensor, "N P Q K"]:
    """out[n, p, q, k] = sum over r, s, c of x[n, p + r - padding, q + s - padding, c] weight[k, r, s, c].

    Shapes: x (N, H, W, C), weight (K, R, S, C) with C from 16, or a multiple of 8, up to 64, K a multiple of 8, stride
    1 and S up to 9; weights of all taps and two tiles fit into shared memory (3 x 3 do). The output is contiguous.
    Strides: any. TMA reads contiguous channels in multiples of 16 bytes; other images are copied first.
    Dtypes: float16, bfloat16, with sums in float32, rounded once at the end.
    Tail: TMA writes zeros for pixels and channels beyond the ends, and does not write elements that overhang the
    output.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for float32, for other sizes, and on other devices; build.CudaError if the launch fails.
    Source: see halo.cu.
    """
    P, Q = check_conv2d(x, weight, stride=stride, padding=padding, precision=precision)
    (N, H, W, C), (K, R, S, _) = x.shape, weight.shape
    check_16_bit(x)
    check_sizes(x, weight, P, Q)
    rows = best_rows(P, R, S)
    if stride != 1 or C > MOST_CHANNELS or (C < 16 and C % 8 != 0) or K % 8 != 0 or S > WIDTH - 7 or rows is None:
        raise NotImplementedError(
            f"conv2d: written for stride 1, C up to {MOST_CHANNELS}, K a multiple of 8 and windows like 3 x 3; "
            f"got stride={stride}, C={C}, K={K}, R={R}, S={S}"
        )
    if x.numel() == 0 or weight.numel() == 0:
        return x.new_zeros(N, P, Q, K)
    of = views(x, weight, Q, stride, padding)
    out = x.new_empty(N, P, Q, K)
    build.launch(
        "conv2d/halo", "conv2d_halo", x.device,
        of.x, of.weight, out, N, H, W, of.channels, *of.x_pitch, K, R, S, *of.weight_pitch, P, Q, padding, rows,
        build.DTYPES[x.dtype],
    )  # fmt: skip
    return out


def config(x: Tensor, weight: Tensor, *, stride: int = 1, padding: int = 0, precision: str = "ieee") -> str:
    """The tile, preceded by the copies of images or weights, as in `pad_images; halo 28x16`; empty without work."""
    P, _ = check_conv2d(x, weight, stride=stride, padding=padding, precision=precision)
    if x.numel() == 0 or weight.numel() == 0:
        return ""
    return f"{copies(x, weight, stride)}halo {best_rows(P, *weight.shape[1:3])}x{WIDTH}"


def best_rows(P: int, R: int, S: int) -> int | None:
    """Rows of a tile, 28 or 32: of those that fit into shared memory, the ones that overhang P least; None if none
    fits."""
    fits = [rows for rows in (32, 28) if (R * S * 64 + 2 * (rows + R - 1) * WIDTH) * 128 + 1024 + 64 <= SHARED_BYTES]
    return min(fits, key=lambda rows: -(-P // rows) * rows, default=None)
