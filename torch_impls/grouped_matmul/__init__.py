"""Products of each expert's rows with its weights by torch.matmul, one expert after the other: on a GPU by cuBLAS."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from torch_impls._runtime.experts import check_grouped_matmul
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch (cuBLAS on a GPU)"


def grouped_matmul(
    x: Float[Tensor, "T K"], weight: Float[Tensor, "E K N"], sizes: Int32[Tensor, E]
) -> Float[Tensor, "T N"]:
    """y[t, n] = sum over k of x[t, k] weight[e, k, n], where row t is among the sizes[e] rows of expert e.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host reads the sizes, and
    waits for them on a GPU.

    Dtypes: float32 with float32 products, float16 or bfloat16 with sums in float32, any strides. sizes: int32.
    Raises ValueError for other shapes and dtypes, and for different devices.
    """
    T, _, _, N = check_grouped_matmul(x, weight, sizes)
    out = x.new_empty(T, N)
    end = 0
    for e, size in enumerate(sizes.tolist()):
        start, end = end, end + size
        out[start:end] = with_precision("ieee", torch.matmul, x[start:end], weight[e])
    return out
