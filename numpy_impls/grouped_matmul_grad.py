"""Gradients of each expert's weights, one expert after the other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int32

from numpy_impls._runtime.experts import check_grouped_matmul_grad


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def grouped_matmul_grad(
    x: Float[np.ndarray, "T K"], dy: Float[np.ndarray, "T N"], sizes: Int32[np.ndarray, E]
) -> Float[np.ndarray, "E K N"]:
    """dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] dy[t, n]; zeros for an expert without rows.

    The rows are in the order of the experts; sizes are not negative, and their sum is T.
    Dtypes: float32, float16 or bfloat16, any strides; computed in float32, and rounded once. sizes: int32.

    Raises ValueError for other shapes and dtypes.
    """
    _, E, K, N = check_grouped_matmul_grad(x, dy, sizes)
    out = np.zeros((E, K, N), x.dtype)
    end = 0
    for e in range(E):
        start, end = end, end + int(sizes[e])
        out[e] = x[start:end].T.astype(np.float32) @ dy[start:end].astype(np.float32)
    return out
