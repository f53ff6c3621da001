"""Convolution of images: one product of matrices for each tap, by NumPy's BLAS."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_conv2d, working

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", invalid="ignore")
def conv2d(
    x: Float[np.ndarray, "N H W C"],
    weight: Float[np.ndarray, "K R S C"],
    *,
    stride: int = 1,
    padding: int = 0,
    precision: str = "ieee",
) -> Float[np.ndarray, "N P Q K"]:
    """y[n, p, q, k] = sum over r, s, c of x[n, p stride + r - padding, q stride + s - padding, c] weight[k, r, s, c].

    Shapes: x (N, H, W, C), weight (K, R, S, C), any strides. Dtypes: float32, float16 or bfloat16. Products and sums
    are float32 and the result is rounded once.

    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32".
    """
    check_conv2d(x, weight, stride=stride, padding=padding, precision=precision, float64=True)
    (N, H, W, C), (K, R, S, _) = x.shape, weight.shape
    P, Q = (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1
    border = (padding, padding)
    wide = np.dtype(working(x))
    images = np.pad(x.astype(wide, copy=False), ((0, 0), border, border, (0, 0)))
    taps = weight.astype(wide, copy=False)
    y = np.zeros((N, P, Q, K), wide)
    for r in range(R):
        for s in range(S):
            pixels = images[:, r : r + (P - 1) * stride + 1 : stride, s : s + (Q - 1) * stride + 1 : stride]
            y += (pixels.reshape(N * P * Q, C) @ taps[:, r, s].T).reshape(y.shape)
    return y.astype(x.dtype, copy=False)
