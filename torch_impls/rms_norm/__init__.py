"""Root mean square normalization of each row of a matrix, by torch's own function."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_norm

VENDOR = "PyTorch"
DTYPES_BEYOND = ("float64",)


def rms_norm(x: Float[Tensor, "M N"], weight: Float[Tensor, N], *, eps: float) -> Float[Tensor, "M N"]:
    """y[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps).

    x (M, N), weight (N,), any strides; the result is row-major.
    float32, float16 or bfloat16; computed in float32 and rounded once. In float64 on a GPU, PyTorch 2.11 gives NaN for
    all of a row with an infinity. Raises ValueError for other shapes and dtypes.
    """
    check_norm("rms_norm", x, weight=weight, float64=True)
    return torch.nn.functional.rms_norm(x, x.shape[1:], weight, eps).contiguous()
