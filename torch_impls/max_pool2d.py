"""Max pooling of images, by PyTorch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_max_pool2d

VENDOR = "PyTorch"


def max_pool2d(
    x: Float[Tensor, "N H W C"], *, window: tuple[int, int], stride: int = 1, padding: int = 0
) -> Float[Tensor, "N P Q C"]:
    """y[n, p, q, c] = max over r < R, s < S of x[n, p stride + r - padding, q stride + s - padding, c], inside x.

    Shapes: x (N, H, W, C), any strides; window (R, S), with padding at most half of it; the result is row-major.
    PyTorch gets a view in `channels_last`, without a copy. float32, float16 or bfloat16.

    Raises ValueError for other shapes, windows and dtypes.
    """
    P, Q = check_max_pool2d(x, window=window, stride=stride, padding=padding)
    if x.numel() == 0:
        return x.new_empty(x.shape[0], P, Q, x.shape[3])
    images = x.permute(0, 3, 1, 2)
    return torch.nn.functional.max_pool2d(images, window, stride, padding).permute(0, 2, 3, 1).contiguous()
