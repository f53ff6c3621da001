"""Products of each expert's rows with its weights in float8 with scales of groups, one expert after the other."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from jaxtyping import Float, Int32

from numpy_impls._runtime.experts import check_grouped_block_scaled_matmul
from numpy_impls.block_scaled_matmul import block_scaled_matmul

DTYPES_BEYOND = ("float8_e4m3fn",)


def grouped_block_scaled_matmul(
    x: Float[np.ndarray, "T K"],
    scale_x: Float[np.ndarray, "T G_K"],
    weight: Float[np.ndarray, "E N K"],
    scale_weight: Float[np.ndarray, "E G_N G_K"],
    sizes: Int32[np.ndarray, E],
) -> Float[np.ndarray, "T N"]:
    """y[t, n] = sum over k of x[t, k] scale_x[t, k // 128] weight[e, n, k] scale_weight[e, n // 128, k // 128].

    Row t is among the sizes[e] rows of expert e. The rows are in the order of the experts; sizes are not negative, and
    their sum is T.

    x (T, K) and weight (E, N, K) float8_e4m3fn, scales float32, sizes int32; any strides. Sums are float32, and the
    result is rounded once to bfloat16. K = 0 gives zeros. Raises ValueError for other arguments.
    """
    T, E, _, N = check_grouped_block_scaled_matmul(x, scale_x, weight, scale_weight, sizes)
    out = np.zeros((T, N), ml_dtypes.bfloat16)
    end = 0
    for e in range(E):
        start, end = end, end + int(sizes[e])
        out[start:end] = block_scaled_matmul(x[start:end], scale_x[start:end], weight[e], scale_weight[e])
    return out
