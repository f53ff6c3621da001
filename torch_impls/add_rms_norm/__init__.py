"""A residual connection, and root mean square normalization of its rows, by two kernels of torch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_norm_pair

VENDOR = "PyTorch"

Matrix = Float[Tensor, "M N"]


def plain(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    r = x + residual
    return torch.nn.functional.rms_norm(r, r.shape[1:], weight, eps), r


def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[Tensor, N], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps).

    x and residual (M, N), weight (N,), any strides; the results are row-major. y is computed from the rounded r.
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    y, r = plain(x, residual, weight, eps)
    return y.contiguous(), r.contiguous()
