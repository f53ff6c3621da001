"""Layers of LSTM cells, one step after the other."""

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
    w_hh: Float[np.ndarray, "*L 4*H H"],
    bias: Float[np.ndarray, "*L 4*H"],
    h0: Float[np.ndarray, "*L B H"],
    c0: Float[np.ndarray, "*L B H"],
    w_ih_upper: Float[np.ndarray, "upper 4*H H"] | None = None,
) -> tuple[Float[np.ndarray, "T B H"], Float[np.ndarray, "*L B H"], Float[np.ndarray, "*L B H"]]:
    """(y, h, c): i, f, g, o = x_t w_ih^T + h w_hh^T + bias; c = sigmoid(f) c + sigmoid(i) tanh(g);
    h = y_t = sigmoid(o) tanh(c).

    With w_ih_upper (L - 1, 4H, H) there are L layers, and each takes the y of the one before: w_hh (L, 4H, H),
    bias (L, 4H), h0, c0, h and c (L, B, H); y is that of the last.

    Dtypes: float32, float16 or bfloat16; everything is computed in float64, including h and c, and rounded once.
    Raises ValueError for other shapes and dtypes.
    """
    check_lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper, float64=True)
    per_layer = (w_hh, bias, h0, c0) if w_ih_upper is not None else (each[None] for each in (w_hh, bias, h0, c0))
    inner = (w_ih, *(() if w_ih_upper is None else w_ih_upper))
    y, states = x.astype(np.float64), []
    for operands in zip(inner, *per_layer, strict=True):
        y, *state = layer(y, *(each.astype(np.float64) for each in operands))
        states.append(state)
    h, c = (np.stack(each) if w_ih_upper is not None else each[0] for each in zip(*states, strict=True))
    return y.astype(x.dtype), h.astype(x.dtype, order="C"), c.astype(x.dtype, order="C")


def layer(
    x: np.ndarray, w_ih: np.ndarray, w_hh: np.ndarray, bias: np.ndarray, h: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, h and c of one layer, in float64."""
    inputs, y = x @ w_ih.T + bias, np.empty((len(x), *h.shape))
    for t in range(len(x)):
        i, f, g, o = np.split(inputs[t] + h @ w_hh.T, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        y[t] = h = sigmoid(o) * np.tanh(c)
    return y, h, c
