"""Softmax of each row of a matrix in CUDA, the plain kernel: a warp reads its row three times."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_rows
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)


@kept
def softmax(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """out[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]).

    Shapes: x (M, N), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: the lanes of a warp take every 32nd column up to N. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if the launch fails.
    """
    check_rows("softmax", x, float64=True)
    M, N = x.shape
    out = x.new_empty(M, N)
    if out.numel() > 0:
        build.launch(
            "softmax/softmax", "softmax", x.device,
            x, out, M, N, *x.stride(), build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
