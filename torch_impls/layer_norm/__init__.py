"""Layer normalization of each row of a matrix, by torch's own function."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_norm

VENDOR = "PyTorch"
DTYPES_BEYOND = ("float64",)


def layer_norm(
    x: Float[Tensor, "M N"], weight: Float[Tensor, N], bias: Float[Tensor, N], *, eps: float
) -> Float[Tensor, "M N"]:
    """y[i, j] = (x[i, j] - mean_i) / sqrt(variance_i + eps) * weight[j] + bias[j], by the biased variance.

    x (M, N), weight and bias (N,), any strides; the result is row-major.
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm("layer_norm", x, weight=weight, bias=bias, float64=True)
    return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, eps).contiguous()
