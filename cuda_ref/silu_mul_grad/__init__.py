"""The gradients of a gated linear unit's product in CUDA, the plain kernel: one thread computes one element of both."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_gated
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True

Matrix = Float[Tensor, "M N"]


@kept
def silu_mul_grad(a: Matrix, b: Matrix, dy: Matrix, *, activation: str = "silu") -> tuple[Matrix, Matrix]:
    """(da, db): gradients of the sum of dy * y, where y is the `silu_mul` of a and b.

    Shapes: a, b and dy (M, N), any strides; the outputs are contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: threads beyond the last element do nothing. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and activations; build.CudaError if the launch fails.
    """
    M, N = check_gated("silu_mul_grad", a, b, dy, activation=activation)
    da, db = a.new_empty(M, N), b.new_empty(M, N)
    if da.numel() > 0:
        build.launch(
            "silu_mul_grad/silu_mul_grad", "silu_mul_grad", a.device,
            a, b, dy, da, db, M, N, *a.stride(), *b.stride(), *dy.stride(), activation == "gelu_tanh",
            build.DTYPES[a.dtype],
        )  # fmt: skip
    return da, db
