"""Max pooling of images in NumPy: one maximum of two arrays for each tap."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_max_pool2d


@np.errstate(invalid="ignore")
def max_pool2d(
    x: Float[np.ndarray, "N H W C"], *, window: tuple[int, int], stride: int = 1, padding: int = 0
) -> Float[np.ndarray, "N P Q C"]:
    """y[n, p, q, c] = max over r < R, s < S of x[n, p stride + r - padding, q stride + s - padding, c], inside x.

    Shapes: x (N, H, W, C), any strides; window (R, S), with padding at most half of it. Dtypes: float32, float16 or
    bfloat16. NaN is larger than all numbers.

    Raises ValueError for other shapes, windows and dtypes.
    """
    P, Q = check_max_pool2d(x, window=window, stride=stride, padding=padding)
    border = (padding, padding)
    images = np.pad(x, ((0, 0), border, border, (0, 0)), constant_values=-np.inf)
    y = np.full((x.shape[0], P, Q, x.shape[3]), -np.inf, x.dtype)
    for r in range(window[0]):
        for s in range(window[1]):
            taps = images[:, r : r + (P - 1) * stride + 1 : stride, s : s + (Q - 1) * stride + 1 : stride]
            y = np.maximum(y, taps)
    return y
