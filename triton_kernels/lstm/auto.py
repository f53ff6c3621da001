"""Layers of LSTM cells in Triton: all time steps in one launch if all programs of that launch run at the same time,
otherwise one launch per time step."""

from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_lstm
from triton_kernels._runtime.launch import kept
from triton_kernels._runtime.layers import each_layer, layers_config
from triton_kernels.lstm import Sequence, State, run_steps
from triton_kernels.lstm.persistent import fits, run_together
from triton_kernels.matmul import auto

DETERMINISTIC = True


def config(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor, w_ih_upper: Tensor | None = None
) -> str:
    """The kernels that `lstm` runs: those of the product x w_ih^T, then `persistent`, or `step` for each step."""
    if w_ih_upper is not None:
        return layers_config(config, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    product = auto.config(x.reshape(-1, x.shape[2]), w_ih.t())
    return "; ".join(filter(None, (product, "persistent" if fits(h0) else "step")))


@kept
def lstm(
    x: Float[Tensor, "T B I"],
    w_ih: Float[Tensor, "4*H I"],
    w_hh: Float[Tensor, "*L 4*H H"],
    bias: Float[Tensor, "*L 4*H"],
    h0: State,
    c0: State,
    w_ih_upper: Float[Tensor, "upper 4*H H"] | None = None,
) -> tuple[Sequence, State, State]:
    """(y, h, c), as `triton_kernels.lstm.lstm`, with the same shapes, dtypes and errors."""
    check_lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if w_ih_upper is not None:
        return each_layer(lstm, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    T, B, I = x.shape  # noqa: E741
    inputs = auto.matmul(x.reshape(T * B, I), w_ih.t()).view(T, B, w_ih.shape[0])
    return (run_together if fits(h0) else run_steps)(inputs, w_hh, bias, h0, c0)
