"""Layers of LSTM cells by torch.lstm, which calls cuDNN on a GPU."""

from __future__ import annotations

import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_lstm, working

VENDOR = "PyTorch (cuDNN on a GPU)"
DTYPES_BEYOND = ("float64",)


def lstm(
    x: Float[Tensor, "T B I"],
    w_ih: Float[Tensor, "4*H I"],
    w_hh: Float[Tensor, "*L 4*H H"],
    bias: Float[Tensor, "*L 4*H"],
    h0: Float[Tensor, "*L B H"],
    c0: Float[Tensor, "*L B H"],
    w_ih_upper: Float[Tensor, "upper 4*H H"] | None = None,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "*L B H"], Float[Tensor, "*L B H"]]:
    """(y, h, c): i, f, g, o = x_t w_ih^T + h w_hh^T + bias; c = sigmoid(f) c + sigmoid(i) tanh(g);
    h = y_t = sigmoid(o) tanh(c).

    With w_ih_upper (L - 1, 4H, H) there are L layers, and each takes the y of the one before: w_hh (L, 4H, H),
    bias (L, 4H), h0, c0, h and c (L, B, H); y is that of the last.

    Dtypes: float32, float16 or bfloat16. On a GPU each call copies the weights to the layout of cuDNN. On a CPU 16-bit
    dtypes are computed in float32 and rounded once, since PyTorch's own kernels round c in each step.
    Raises ValueError for other shapes and dtypes.
    """
    T, B, _, H = check_lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper, float64=True)
    if T == 0 or B == 0 or H == 0:
        return x.new_empty(T, B, H), *(each.clone(memory_format=torch.contiguous_format) for each in (h0, c0))
    wide = x.dtype if x.is_cuda else getattr(torch, working(x))
    states = tuple(each.to(wide).reshape(-1, B, H).contiguous() for each in (h0, c0))
    inner = (w_ih, *(() if w_ih_upper is None else w_ih_upper))
    weights = []
    for inputs, hidden, own in zip(inner, w_hh.reshape(-1, 4 * H, H), bias.reshape(-1, 4 * H), strict=True):
        weights += [each.to(wide).contiguous() for each in (inputs, hidden, own, torch.zeros_like(own))]
    with warnings.catch_warnings(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")
        y, h, c = torch.lstm(x.to(wide).contiguous(), states, weights, True, len(inner), 0.0, False, False, False)
    return y.to(x.dtype), h.view(h0.shape).to(x.dtype), c.view(c0.shape).to(x.dtype)
