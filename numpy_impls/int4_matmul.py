"""Product with weights of 4 bits, a scale for each group of 128, by NumPy's BLAS."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, UInt8

from numpy_impls._runtime.products import GROUP, check_int4_matmul


@np.errstate(over="ignore", invalid="ignore")
def int4_matmul(
    x: Float[np.ndarray, "M K"],
    weight: UInt8[np.ndarray, "N K_2"],
    scale: Float[np.ndarray, "N G_K"],
    zero: UInt8[np.ndarray, "N G_K"] | None = None,
) -> Float[np.ndarray, "M N"]:
    """y[m, n] = sum over k of x[m, k] scale[n, k // 128] (code[n, k] - zero[n, k // 128]), in x's type.

    x (M, K) and scale (N, K / 128) float16 or bfloat16; weight (N, K / 2) uint8 has two codes a byte, the lower first;
    zero (N, K / 128) uint8, 8 if not given; sizes are rounded up. Weights are float32, sums too, and the result is
    rounded once. K = 0 gives zeros. Raises ValueError for other arguments.
    """
    _, N, K = check_int4_matmul(x, weight, scale, zero)
    codes = np.stack((weight & 15, weight >> 4), 2).reshape(N, 2 * weight.shape[1])[:, :K].astype(np.float32)
    middle = 8 if zero is None else zero.astype(np.float32).repeat(GROUP, 1)[:, :K]
    w = (codes - middle) * scale.astype(np.float32).repeat(GROUP, 1)[:, :K]
    return (x.astype(np.float32) @ w.T).astype(x.dtype)
