"""Convolution of images by cuDNN on a GPU, oneDNN on a CPU, through PyTorch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_conv2d

VENDOR = "PyTorch (cuDNN on a GPU)"
DTYPES_BEYOND = ("float64",)


def conv2d(
    x: Float[Tensor, "N H W C"],
    weight: Float[Tensor, "K R S C"],
    *,
    stride: int = 1,
    padding: int = 0,
    precision: str = "ieee",
) -> Float[Tensor, "N P Q K"]:
    """y[n, p, q, k] = sum over r, s, c of x[n, p stride + r - padding, q stride + s - padding, c] weight[k, r, s, c].

    Shapes: x (N, H, W, C), weight (K, R, S, C), any strides; the result is row-major. cuDNN gets views in
    `channels_last`, without copies, and times its algorithms in the first call of each shape (`benchmark`).
    float32, float16 or bfloat16; sums in float32. float32: precision "ieee", or "tf32" on a GPU. The settings of the
    process are restored after the call. On a CPU bfloat16 with a stride is widened to float32: oneDNN 3.12
    leaves results unwritten in its bfloat16 tiles (AMX), as for W = 1, S = 3, stride 3 and padding 2.

    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32" on a CPU.
    """
    check_conv2d(x, weight, stride=stride, padding=padding, precision=precision, float64=True)
    if weight.numel() == 0 or x.numel() == 0:
        return _zeros(x, weight, stride, padding)
    images, taps = x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2)
    if not x.is_cuda:
        if x.dtype == torch.bfloat16 and stride > 1:
            images, taps = images.float(), taps.float()
        y = torch.nn.functional.conv2d(images, taps, stride=stride, padding=padding)
        return y.permute(0, 2, 3, 1).contiguous().to(x.dtype)
    flags = torch.backends.cudnn.conv
    before = flags.fp32_precision, torch.backends.cudnn.benchmark
    flags.fp32_precision, torch.backends.cudnn.benchmark = precision, True
    try:
        y = torch.nn.functional.conv2d(images, taps, stride=stride, padding=padding)
    finally:
        flags.fp32_precision, torch.backends.cudnn.benchmark = before
    return y.permute(0, 2, 3, 1).contiguous()


def _zeros(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    (N, H, W, _), (K, R, S, _) = x.shape, weight.shape
    return x.new_zeros(N, (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1, K)
