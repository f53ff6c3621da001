"""Prefix sums of rows in CUDA, the plain kernel: a warp adds its row 32 elements at a time."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_rows
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def cumsum(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i, j] = sum over k <= j of x[i, k].

    Shapes: x (M, N), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: elements beyond N count as 0. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if the launch fails.
    """
    M, N = check_rows("cumsum", x)
    y = x.new_empty(M, N)
    if y.numel() > 0:
        build.launch("cumsum/cumsum", "cumsum", x.device, x, y, M, N, *x.stride(), build.DTYPES[x.dtype])
    return y
