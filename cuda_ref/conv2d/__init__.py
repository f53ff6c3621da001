"""Convolution of images in CUDA, the plain kernel: one thread computes one element of the output."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_conv2d
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)


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

    Shapes: x (N, H, W, C), weight (K, R, S, C), any strides, any sizes; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; products and sums in float32, rounded once at the end.
    Precision: "ieee" multiplies the inputs as they are; "tf32", for float32 only, first rounds them to tf32 (11
    significant bits, to nearest, ties away from zero). Sums are in order of r, s and c, without tensor cores.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices; build.CudaError if
    the launch fails.
    Source: see conv2d.cu.
    """
    P, Q = check_conv2d(x, weight, stride=stride, padding=padding, precision=precision, float64=True)
    (N, H, W, C), (K, R, S, _) = x.shape, weight.shape
    out = x.new_empty(N, P, Q, K)
    if out.numel() > 0:
        build.launch(
            "conv2d/conv2d", "conv2d", x.device,
            x, weight, out, N, H, W, C, *x.stride(), K, R, S, *weight.stride(), P, Q, stride, padding,
            precision == "tf32", build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
