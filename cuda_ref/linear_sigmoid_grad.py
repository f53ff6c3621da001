"""The gradients of a linear layer with a sigmoid in CUDA: four kernels, each as simple as it can be."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._arguments import check_linear
from cuda_ref._kept import kept
from cuda_ref.linear_sigmoid import forward
from cuda_ref.sum import sum as sum_of

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

    dz = dy y (1 - y), by the kernel of linear_sigmoid.cu; dx = dz weight and dweight = dz^T x, by that of
    matmul_tiled.cu; dbias = sum over the rows of dz, by that of sum.cu.

    Shapes: x (M, K), weight (N, K), bias (N,), dy (M, N), any strides, any sizes; the results are contiguous.
    Dtypes: float32, float16, bfloat16, the same for all; products and sums in float32; dz and the results are rounded.
    Precision: "ieee" multiplies the factors as they are; "tf32", for float32 only, first rounds them to tf32.
    Devices: CUDA; on the CPU the same kernels are emulated, for agreement only.
    Raises: ValueError for other shapes, dtypes and precisions, and for two devices; build.CudaError if a launch fails.
    """
    M, N, K = check_linear("linear_sigmoid_grad", x, weight, bias, dy, precision=precision)
    dz = forward(x, weight, bias, dy, precision)
    dx, dweight = x.new_empty(M, K), x.new_empty(N, K)
    tf32, dtype = precision == "tf32", build.DTYPES[x.dtype]
    for a, b, out in ((dz, weight, dx), (dz.t(), x, dweight)):
        if out.numel() > 0:
            build.launch(
                "matmul_tiled", "matmul_tiled", x.device,
                a, b, out, *out.shape, a.shape[1], *a.stride(), *b.stride(), tf32, dtype,
            )  # fmt: skip
    return dx, dweight, sum_of(dz, axis=0)
