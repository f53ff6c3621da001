"""A layer of LSTM cells by torch.lstm, which calls cuDNN on a GPU."""

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
    w_hh: Float[Tensor, "4*H H"],
    bias: Float[Tensor, 4 * H],
    h0: Float[Tensor, "B H"],
    c0: Float[Tensor, "B H"],
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """(y, h, c): i, f, g, o = x_t w_ih^T + h w_hh^T + bias; c = sigmoid(f) c + sigmoid(i) tanh(g);
    h = y_t = sigmoid(o) tanh(c).

    Dtypes: float32, float16 or bfloat16. On a GPU each call copies the weights to the layout of cuDNN. On a CPU 16-bit
    dtypes are computed in float32 and rounded once, since PyTorch's own kernels round c in each step.
    Raises ValueError for other shapes and dtypes.
    """
    T, B, _, H = check_lstm(x, w_ih, w_hh, bias, h0, c0, float64=True)
    if T == 0 or B == 0 or H == 0:
        return x.new_empty(T, B, H), *(each.clone(memory_format=torch.contiguous_format) for each in (h0, c0))
    tensors = (x, w_ih, w_hh, bias, h0, c0)
    x, w_ih, w_hh, bias, h0, c0 = tensors if x.is_cuda else (each.to(getattr(torch, working(x))) for each in tensors)
    state = (h0.contiguous()[None], c0.contiguous()[None])
    weights = [each.contiguous() for each in (w_ih, w_hh, bias, torch.zeros_like(bias))]
    with warnings.catch_warnings(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")
        y, h, c = torch.lstm(x.contiguous(), state, weights, True, 1, 0.0, False, False, False)
    dtype = tensors[0].dtype
    return y.to(dtype), h[0].to(dtype), c[0].to(dtype)
