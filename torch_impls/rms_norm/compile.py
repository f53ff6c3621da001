"""Root mean square normalization of each row of a matrix, compiled by torch.compile."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_norm

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"


def _plain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[1:], weight, eps)


_rms_norm = compiled("rms_norm", _plain)


def rms_norm(x: Float[Tensor, "M N"], weight: Float[Tensor, N], *, eps: float) -> Float[Tensor, "M N"]:
    """y[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps).

    x (M, N), weight (N,), row-major; float32 inside, rounded once.
    Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for small matrices.
    """
    check_norm("rms_norm", x, weight=weight)
    return _rms_norm(x, weight, eps=eps)
