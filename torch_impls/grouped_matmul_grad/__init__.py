"""Gradients of each expert's weights by torch.matmul, one expert after the other: on a GPU by cuBLAS."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from torch_impls._runtime.experts import check_grouped_matmul_grad
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch (cuBLAS on a GPU)"


def grouped_matmul_grad(
    x: Float[Tensor, "T K"], dy: Float[Tensor, "T N"], sizes: Int32[Tensor, E]
) -> Float[Tensor, "E K N"]:
    """dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] dy[t, n]; zeros for an expert without rows.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host reads the sizes, and
    waits for them on a GPU.

    Dtypes: float32 with float32 products, float16 or bfloat16 with sums in float32, any strides. sizes: int32.
    Raises ValueError for other shapes and dtypes, and for different devices.
    """
    _, E, K, N = check_grouped_matmul_grad(x, dy, sizes)
    out = x.new_empty(E, K, N)
    end = 0
    for e, size in enumerate(sizes.tolist()):
        start, end = end, end + size
        out[e] = with_precision("ieee", torch.matmul, x[start:end].t(), dy[start:end])
    return out
