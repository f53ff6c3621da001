"""Convolution of images in Triton: chooses the kernel by the shape and layout of the images.

The kernel is `triton/boxes` if TMA can read the images and boxes overhang the output by at most a quarter, the plain
kernel for windows with few channels, and otherwise `triton/taps`.
"""

import triton
from jaxtyping import Float
from torch import Tensor

from triton_kernels import conv2d as plain
from triton_kernels._runtime.contract import check_conv2d
from triton_kernels._runtime.launch import kept
from triton_kernels.conv2d import boxes, taps

DETERMINISTIC = True
KERNELS = {"boxes": boxes.conv2d, "taps": taps.conv2d, "gather": plain.conv2d}


def overhangs_little(x: Tensor, weight: Tensor, padding: int) -> bool:
    """True if the boxes of `triton/boxes` have at most a quarter more results than the output."""
    (N, H, W, _), (K, R, S, _) = x.shape, weight.shape
    P, Q = H + 2 * padding - R + 1, W + 2 * padding - S + 1
    computed = boxes.pixels_of_boxes(N, P, Q, boxes.box_of(N, P, Q)) * triton.cdiv(K, 64) * 64
    return 4 * computed <= 5 * N * P * Q * K


def config(x: Tensor, weight: Tensor, *, stride: int = 1, padding: int = 0, precision: str = "ieee") -> str:
    """The kernel that `conv2d` runs: `boxes`, `taps`, or `gather`, the plain one."""
    if not boxes.obstacle(x, weight, stride, precision) and overhangs_little(x, weight, padding):
        return "boxes"
    return "taps" if taps.covers(x, weight) else "gather"


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

    Shapes, dtypes, precisions and errors are those of `triton_kernels.conv2d.conv2d`.
    """
    check_conv2d(x, weight, stride=stride, padding=padding, precision=precision)
    kernel = KERNELS[config(x, weight, stride=stride, padding=padding, precision=precision)]
    return kernel(x, weight, stride=stride, padding=padding, precision=precision)
