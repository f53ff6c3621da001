"""The gradients of root mean square normalization in Triton: programs take rows in turn and add dweight."""

from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.norm_grads import norm_grads
from triton_kernels._runtime.contract import check_norm_pair
from triton_kernels._runtime.launch import kept

DETERMINISTIC = True

Matrix = Float[Tensor, "M N"]
Vector = Float[Tensor, "N"]


@kept
def rms_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector]:
    """(dx, dweight): gradients of the sum of dy * y, where y is the `rms_norm` of x.

    Shapes: x and dy (M, N), weight (N,), any strides. The outputs are contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once. The order of sums over rows depends on the device.
    Tail: rows and columns beyond the last are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: Triton's tutorial "Layer Normalization", whose programs add to shared sums with locks; these have their own.
    """
    check_norm_pair("rms_norm_grad", x, weight, dy=dy)
    dx, dweight = norm_grads(x, weight, dy, eps, centered=False)
    return dx, dweight
