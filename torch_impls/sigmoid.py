"""Sigmoid by torch.sigmoid: y = 1 / (1 + exp(-x)), for any shape."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_elementwise

VENDOR = "PyTorch"
DTYPES_BEYOND = ("float64",)


def sigmoid(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """y = 1 / (1 + exp(-x)) for float32, float16 or bfloat16, any shape and strides; the result is row-major.

    16-bit dtypes are computed in float32 and rounded once. float32 on a CPU errs by up to 2.5 ulp. For x < -88.7
    exp(-x) overflows and y is 0, although float32 and bfloat16 have subnormal numbers there. Raises ValueError for
    other dtypes.
    """
    check_elementwise("sigmoid", x, float64=True)
    if x.is_contiguous():
        return torch.sigmoid(x)
    return torch.sigmoid(x, out=x.new_empty(x.shape))
