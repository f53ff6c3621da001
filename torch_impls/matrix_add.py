"""Matrix addition by torch.add: c[i, j] = a[i, j] + b[i, j], for any strides."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_add

VENDOR = "PyTorch"
DTYPES_BEYOND = ("float64",)


def matrix_add(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """c = a + b for matrices of float32, float16 or bfloat16 with any strides: transposed, sliced, broadcast (0).

    16-bit dtypes are added in float32 and rounded once. The result is row-major: torch.add gets an `out`, because by
    default it uses the strides of its inputs. Raises ValueError for other shapes and dtypes, and for different devices.
    """
    check_add("matrix_add", a, b, ndim=2, float64=True)
    return torch.add(a, b, out=a.new_empty(a.shape))
