"""Layers of LSTM cells in CUDA, the plain kernel: a launch for each time step."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_lstm
from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.layers import each_layer

DETERMINISTIC = True


@kept
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

    Shapes: x (T, B, I), w_ih (4H, I), w_hh (4H, H), bias (4H,), h0 and c0 (B, H), any strides: torch copies tensors
    that are not contiguous. The results are contiguous.
    Dtypes: float32, float16, bfloat16, the same for all; h is rounded to this dtype in each step, sums and c are
    float32. Memory: 4 B H bytes.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for I, B or H above 2^18; build.CudaError if a
    launch fails.
    Source: S. Hochreiter, J. Schmidhuber, "Long Short-Term Memory", Neural Computation 9(8), 1997.
    """
    T, B, I, H = check_lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper)  # noqa: E741
    if w_ih_upper is not None:
        return each_layer(lstm, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if max(B, I, H) > 2**18:
        raise NotImplementedError(f"lstm: B, I and H must be at most 2^18; got B={B}, I={I}, H={H}")
    if T == 0 or B == 0 or H == 0:
        return x.new_empty(T, B, H), *(each.clone(memory_format=torch.contiguous_format) for each in (h0, c0))
    x, w_ih, w_hh, bias, h0, c0 = (each.contiguous() for each in (x, w_ih, w_hh, bias, h0, c0))
    y, h, c = x.new_empty(T, B, H), x.new_empty(B, H), x.new_empty(B, H)
    cells = x.new_empty(B, H, dtype=torch.float32)
    build.launch(
        "lstm/lstm", "lstm", x.device,
        x, w_ih, w_hh, bias, h0, c0, y, h, c, cells, T, B, I, H, build.DTYPES[x.dtype],
    )  # fmt: skip
    return y, h, c
