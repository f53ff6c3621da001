"""Matrix addition in CUDA, the plain kernel: one thread adds one element."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_add
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)


@kept
def matrix_add(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """out[m, n] = a[m, n] + b[m, n].

    Shapes: a and b (M, N), any strides: transposed, sliced, broadcast (stride 0); the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; 16-bit types are added in float32 and rounded once.
    Tail: threads beyond the right and lower edge do nothing; a loop steps through rows beyond the grid. Indices are
    int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; build.CudaError if the launch
    fails.
    Source: see matrix_add.cu.
    """
    check_add("matrix_add", a, b, ndim=2, float64=True)
    M, N = a.shape
    out = a.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "matrix_add/matrix_add", "matrix_add", a.device,
            a, b, out, M, N, *a.stride(), *b.stride(), build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
