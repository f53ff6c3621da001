"""Products of each expert's rows with its weights, one expert after the other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int32

from numpy_impls._runtime.experts import check_grouped_matmul


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def grouped_matmul(
    x: Float[np.ndarray, "T K"], weight: Float[np.ndarray, "E K N"], sizes: Int32[np.ndarray, E]
) -> Float[np.ndarray, "T N"]:
    """y[t, n] = sum over k of x[t, k] weight[e, k, n], where row t is among the sizes[e] rows of expert e.

    The rows are in the order of the experts; sizes are not negative, and their sum is T.
    Dtypes: float32, float16 or bfloat16, any strides; computed in float32, and rounded once. sizes: int32.

    Raises ValueError for other shapes and dtypes.
    """
    T, E, _, N = check_grouped_matmul(x, weight, sizes)
    out = np.zeros((T, N), x.dtype)
    end = 0
    for e in range(E):
        start, end = end, end + int(sizes[e])
        out[start:end] = x[start:end].astype(np.float32) @ weight[e].astype(np.float32)
    return out
