"""Layer normalization of each row of a matrix, compiled by torch.compile."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_norm

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"


def _plain(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, eps)


_layer_norm = compiled("layer_norm", _plain)


def layer_norm(
    x: Float[Tensor, "M N"], weight: Float[Tensor, N], bias: Float[Tensor, N], *, eps: float
) -> Float[Tensor, "M N"]:
    """y[i, j] = (x[i, j] - mean_i) / sqrt(variance_i + eps) * weight[j] + bias[j], by the biased variance.

    x (M, N), weight and bias (N,), row-major; float32 inside, rounded once.
    Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for small matrices.
    """
    check_norm("layer_norm", x, weight=weight, bias=bias)
    return _layer_norm(x, weight, bias, eps=eps)
