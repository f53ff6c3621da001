"""A layer of LSTM cells, one step after the other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_lstm

DTYPES_BEYOND = ("float64",)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def lstm(
    x: Float[np.ndarray, "T B I"],
    w_ih: Float[np.ndarray, "4*H I"],
    w_hh: Float[np.ndarray, "4*H H"],
    bias: Float[np.ndarray, 4 * H],
    h0: Float[np.ndarray, "B H"],
    c0: Float[np.ndarray, "B H"],
) -> tuple[Float[np.ndarray, "T B H"], Float[np.ndarray, "B H"], Float[np.ndarray, "B H"]]:
    """(y, h, c): i, f, g, o = x_t w_ih^T + h w_hh^T + bias; c = sigmoid(f) c + sigmoid(i) tanh(g);
    h = y_t = sigmoid(o) tanh(c).

    Dtypes: float32, float16 or bfloat16; everything is computed in float64, including h and c, and rounded once.
    Raises ValueError for other shapes and dtypes.
    """
    T, B, _, H = check_lstm(x, w_ih, w_hh, bias, h0, c0, float64=True)
    y = np.empty((T, B, H), x.dtype)
    inputs = x.astype(np.float64) @ w_ih.astype(np.float64).T + bias.astype(np.float64)
    weights, h, c = w_hh.astype(np.float64).T, h0.astype(np.float64), c0.astype(np.float64)
    for t in range(T):
        i, f, g, o = np.split(inputs[t] + h @ weights, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        y[t] = h.astype(x.dtype)
    return y, h.astype(x.dtype, order="C"), c.astype(x.dtype, order="C")
