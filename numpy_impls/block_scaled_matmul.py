"""Product of float8 codes with a scale for each group of 128 terms, by NumPy's BLAS."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.products import GROUP, check_block_scaled_matmul

DTYPES_BEYOND = ("float8_e4m3fn",)


@np.errstate(over="ignore", invalid="ignore")
def block_scaled_matmul(
    a: Float[np.ndarray, "M K"],
    scale_a: Float[np.ndarray, "M G_K"],
    b: Float[np.ndarray, "N K"],
    scale_b: Float[np.ndarray, "G_N G_K"],
) -> Float[np.ndarray, "M N"]:
    """c[i, j] = sum over k of a[i, k] scale_a[i, k // 128] b[j, k] scale_b[j // 128, k // 128], in bfloat16.

    a (M, K) and b (N, K) float8_e4m3fn, scales float32; any strides. The sums of groups and their sum are float32, and
    the result is rounded once. K = 0 gives zeros. Raises ValueError for other arguments.
    """
    M, N, K = check_block_scaled_matmul(a, scale_a, b, scale_b)
    of_columns = scale_b.repeat(GROUP, 0)[:N]
    c = np.zeros((M, N), np.float32)
    for group, start in enumerate(range(0, K, GROUP)):
        span = slice(start, start + GROUP)
        sums = a[:, span].astype(np.float32) @ b[:, span].astype(np.float32).T
        c += sums * (scale_a[:, group, None] * of_columns[:, group])
    return c.astype(ml_dtypes.bfloat16)
