"""The gradients of a linear layer with a sigmoid in CUDA: wgmma.py, with dx and dweight by matmul/auto.py."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.linear_sigmoid_grad.wgmma import gradients, steps
from cuda_ref.matmul import auto as product

REQUIRES = "sm_90"


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

    Shapes, strides, dtypes, precisions, devices and errors: those of wgmma.py. `config` names the kernels that run.
    """
    return gradients(product.matmul, x, weight, bias, dy, precision)


def config(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, *, precision: str = "ieee") -> str:
    """The steps that `linear_sigmoid_grad` runs: dz, dbias, dx, dweight."""
    return steps(product.config, x, weight, dy)
