"""The gradients of layer normalization, compiled by torch.compile from their formula."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_norm_pair
from torch_impls.layer_norm_grad import Matrix, Vector

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"


def _plain(x: Tensor, weight: Tensor, dy: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    wide, of_y = x.float(), dy.float()
    centered = wide - wide.mean(1, keepdim=True)
    s = torch.rsqrt(centered.square().mean(1, keepdim=True) + eps)
    normed, g = centered * s, of_y * weight.float()
    dx = s * (g - g.mean(1, keepdim=True) - normed * (g * normed).mean(1, keepdim=True))
    return dx.to(x.dtype), (of_y * normed).sum(0).to(x.dtype), of_y.sum(0).to(x.dtype)


_gradients = compiled("layer_norm_grad", _plain)


def layer_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector, Vector]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `layer_norm` of x; float32 inside.

    Row-major operands. Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for few
    elements.
    """
    check_norm_pair("layer_norm_grad", x, weight, dy=dy)
    return _gradients(x, weight, dy, eps=eps)
