"""Matrix addition in CUDA by tiles. Unlike the plain kernel it reads each operand along its contiguous dimension."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_add
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def matrix_add(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """out[m, n] = a[m, n] + b[m, n].

    Shapes: a and b (M, N), any strides: transposed, sliced, broadcast (stride 0); the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; 16-bit types are added in float32 and rounded once.
    Tail: blocks skip elements beyond the right and lower edge. Unless all rows start at multiples of 16 bytes, elements
    are read one by one. Indices are int64.
    Devices: CUDA; on the CPU the same kernels are emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; build.CudaError if the launch
    fails.
    Source: see tiles.cu, which also lists the kernels and their layouts.
    """
    check_add("matrix_add", a, b, ndim=2)
    M, N = a.shape
    out = a.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "matrix_add/tiles", "matrix_add_tiles", a.device,
            a, b, out, M, N, *a.stride(), *b.stride(), build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
