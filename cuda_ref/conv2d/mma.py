"""Convolution of images in CUDA by mma.sync: adds tensor cores to the plain kernel. They compute an implicit matrix
product; threads copy its rows to shared memory."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_conv2d
from cuda_ref._runtime.kept import kept
from cuda_ref.conv2d._images import check_16_bit, check_sizes, copies, views

DETERMINISTIC = True


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

    Shapes: x (N, H, W, C), weight (K, R, S, C), up to 2^31 - 513 pixels of the output; the output is contiguous.
    Strides: any. Copies take contiguous channels in multiples of 16 bytes. Other images, and those with few channels,
    are copied first; this takes their size in memory.
    Dtypes: float16, bfloat16, with sums in float32, rounded once at the end.
    Tail: copies fill the padding and overhanging elements with zeros; outputs beyond the edge are not stored.
    Devices: CUDA, compute capability 8.0 or newer. On a CPU tiles are of 32 x 32.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for float32 and for larger sizes; build.CudaError if the launch fails.
    Source: see mma.cu.
    """
    P, Q = check_conv2d(x, weight, stride=stride, padding=padding, precision=precision)
    check_16_bit(x)
    check_sizes(x, weight, P, Q)
    (N, H, _, _), (K, R, _, _) = x.shape, weight.shape
    if x.numel() == 0 or weight.numel() == 0:
        return x.new_zeros(N, P, Q, K)
    of = views(x, weight, Q, stride, padding)
    out = x.new_empty(N, P, Q, K)
    build.launch(
        "conv2d/mma", "conv2d_mma", x.device,
        of.x, of.weight, out, N, H, of.width, of.channels, *of.x_pitch, K, R, of.S, *of.weight_pitch, P, Q,
        stride, of.stride, padding, of.padding, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out


def config(x: Tensor, weight: Tensor, *, stride: int = 1, padding: int = 0, precision: str = "ieee") -> str:
    """The kernel, preceded by the copies of images or weights, as in `pad_images; mma`; empty without work."""
    return f"{copies(x, weight, stride)}mma" if x.numel() > 0 and weight.numel() > 0 else ""
