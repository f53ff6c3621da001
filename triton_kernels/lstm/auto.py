"""A layer of LSTM cells in Triton: one launch for all time steps, whose programs wait for each other."""

from jaxtyping import Float
from torch import Tensor

from triton_kernels import lstm as steps
from triton_kernels._runtime.arguments import check_lstm

DETERMINISTIC = True


def lstm(
    x: Float[Tensor, "T B I"],
    w_ih: Float[Tensor, "4*H I"],
    w_hh: Float[Tensor, "4*H H"],
    bias: Float[Tensor, "4*H"],
    h0: steps.State,
    c0: steps.State,
) -> tuple[steps.Sequence, steps.State, steps.State]:
    """What the plain kernel computes, by the same kernel, which goes over the steps itself.

    After each step programs wait for each other at a counter in memory. The launch is cooperative: it fails unless all
    of them run at the same time. Weights are read anew in each step, from the caches.
    In the interpreter, where one program runs after the other, each step is a launch.
    Errors: as the plain kernel; NotImplementedError for more programs than multiprocessors (8 units and 128 rows each).
    """
    check_lstm(x, w_ih, w_hh, bias, h0, c0)
    return steps.run((x, w_ih, w_hh, bias, h0, c0), together=True)
