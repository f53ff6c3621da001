"""Vector addition by torch.add: c[i] = a[i] + b[i]."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_add

VENDOR = "PyTorch"
DTYPES_BEYOND = ("float64",)


def vector_add(a: Float[Tensor, " N"], b: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """c = a + b for vectors of float32, float16 or bfloat16 with any stride, on the GPU or the CPU.

    16-bit types are added in float32 and rounded once. Raises ValueError for other shapes and dtypes, and for different
    devices.
    """
    check_add("vector_add", a, b, ndim=1, float64=True)
    return torch.add(a, b)
