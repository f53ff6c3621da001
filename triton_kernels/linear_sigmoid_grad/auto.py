"""The gradients of a linear layer with a sigmoid in Triton: dz by `pipelined`, then two products by `auto`."""

from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.contract import check_linear
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept
from triton_kernels.linear_sigmoid.pipelined import launch_forward
from triton_kernels.matmul import auto
from triton_kernels.sum.parts import sum as sum_of

DETERMINISTIC = True


@kept
def linear_sigmoid_grad(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, "N"],
    dy: Float[Tensor, "M N"],
    *,
    precision: str = "ieee",
) -> tuple[Float[Tensor, "M K"], Float[Tensor, "N K"], Float[Tensor, "N"]]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `linear_sigmoid` of x, weight and bias.

    dz = dy y (1 - y) is computed with x weight^T; then dx = dz weight, dweight = dz^T x, and dbias, the sum of the rows
    of dz.

    Shapes: x (M, K), weight (N, K), bias (N,), dy (M, N), any strides. The results are contiguous.
    Dtypes: float32, float16, bfloat16, the same for all; sums in float32; dz and the results are rounded.
    Precision: as in `linear_sigmoid`, for all three products.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for M above 2^28,
    N or K above 2^26.
    """
    M, N, K = check_linear("linear_sigmoid_grad", x, weight, bias, dy, precision=precision)
    check_sizes("linear_sigmoid_grad", M, N, K)
    dz = empty_output((M, N), x.dtype, x.device)
    if dz.numel() > 0:
        with device_of(x):
            launch_forward(x, weight, bias, dy, dz, precision)
    dz = finished_output(dz, x.dtype)
    dx = auto.matmul(dz, weight, precision=precision)
    return dx, auto.matmul(dz.t(), x, precision=precision), sum_of(dz, axis=0)


def config(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, *, precision: str = "ieee") -> str:
    """The kernels that `linear_sigmoid_grad` runs: dz, the two products as `triton/auto` of matmul, and the sum."""
    dz = dy.new_empty(dy.shape)
    products = (auto.config(dz, weight, precision=precision), auto.config(dz.t(), x, precision=precision))
    return "; ".join(["pipelined", *products, "sum_parts"])
