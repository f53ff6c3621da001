"""The gradients of a linear layer with a sigmoid in CUDA, the plain kernel: four simple kernels."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_linear
from cuda_ref._runtime.kept import kept

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

    dz = dy y (1 - y), in the pass that computes x weight^T; dx = dz weight, dweight = dz^T x, dbias = sum over the rows
    of dz.

    Shapes: x (M, K), weight (N, K), bias (N,), dy (M, N), any strides, any sizes; the results are contiguous.
    Dtypes: float32, float16, bfloat16, the same for all; products and sums in float32; dz and the results are rounded.
    Precision: "ieee" multiplies the factors as they are; "tf32", for float32 only, first rounds them to tf32.
    Devices: CUDA; on the CPU the same kernels are emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices; build.CudaError if
    a launch fails.
    Source: see linear_sigmoid_grad.cu.
    """
    M, N, K = check_linear("linear_sigmoid_grad", x, weight, bias, dy, precision=precision)
    dz, dx, dweight, dbias = x.new_empty(M, N), x.new_empty(M, K), x.new_empty(N, K), x.new_empty(N)
    build.launch(
        "linear_sigmoid_grad/linear_sigmoid_grad", "linear_sigmoid_grad", x.device,
        x, weight, bias, dy, dz, dx, dweight, dbias, M, N, K, *x.stride(), *weight.stride(), *bias.stride(),
        *dy.stride(), precision == "tf32", build.DTYPES[x.dtype],
    )  # fmt: skip
    return dx, dweight, dbias
