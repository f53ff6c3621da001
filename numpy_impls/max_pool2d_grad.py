"""The gradient of max pooling in NumPy: the taps of all windows one after the other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_max_pool2d_grad


@np.errstate(invalid="ignore", over="ignore")
def max_pool2d_grad(
    x: Float[np.ndarray, "N H W C"],
    dy: Float[np.ndarray, "N P Q C"],
    *,
    window: tuple[int, int],
    stride: int = 1,
    padding: int = 0,
) -> Float[np.ndarray, "N H W C"]:
    """dx[n, h, w, c]: the sum of dy[n, p, q, c] over the windows whose largest pixel is x[n, h, w, c].

    If pixels of a window are equal, the first one counts, row by row. A NaN in x is not specified.

    Shapes: x (N, H, W, C), dy (N, P, Q, C), any strides; window (R, S), with padding at most half of it. Dtypes:
    float32, float16 or bfloat16, the same for both; sums in float32, rounded once.

    Raises ValueError for other shapes, windows and dtypes.
    """
    P, Q = check_max_pool2d_grad(x, dy, window=window, stride=stride, padding=padding)
    _, H, W, _ = x.shape
    border = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    images, inside = np.pad(x.astype(np.float32), border), np.pad(np.ones(x.shape, bool), border)
    gradient = dy.astype(np.float32)
    spans = [
        (slice(None), slice(r, r + (P - 1) * stride + 1, stride), slice(s, s + (Q - 1) * stride + 1, stride))
        for r in range(window[0])
        for s in range(window[1])
    ]
    best, winner = np.full(dy.shape, -np.inf, np.float32), np.full(dy.shape, -1)
    for tap, at in enumerate(spans):
        larger = inside[at] & ((images[at] > best) | (winner < 0))
        best, winner = np.where(larger, images[at], best), np.where(larger, tap, winner)
    dx = np.zeros(images.shape, np.float32)
    for tap, at in enumerate(spans):
        dx[at] += np.where(winner == tap, gradient, np.float32(0.0))
    return np.ascontiguousarray(dx[:, padding : padding + H, padding : padding + W].astype(x.dtype, copy=False))
