"""The gradient of max pooling by PyTorch: the pooling with its indices, and its backward pass."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_max_pool2d_grad

VENDOR = "PyTorch"


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

    Shapes: x (N, H, W, C), dy (N, P, Q, C), any strides; window (R, S), with padding at most half of it; dx is
    row-major. float32, float16 or bfloat16, the same for both. Where windows overlap, 16-bit arrays are widened first:
    PyTorch adds their gradients in 16 bits.

    Raises ValueError for other shapes, windows and dtypes.
    """
    check_max_pool2d_grad(x, dy, window=window, stride=stride, padding=padding)
    if x.numel() == 0:
        return torch.zeros_like(x, memory_format=torch.contiguous_format)
    images, gradient = (each.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last) for each in (x, dy))
    if max(window) > stride:
        images, gradient = images.float(), gradient.float()
    at = list(window), [stride, stride], [padding, padding], [1, 1], False
    _, indices = torch.ops.aten.max_pool2d_with_indices(images, *at)
    dx = torch.ops.aten.max_pool2d_with_indices_backward(gradient, images, *at, indices)
    return dx.permute(0, 2, 3, 1).contiguous().to(x.dtype)
