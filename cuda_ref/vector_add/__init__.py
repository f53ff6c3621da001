"""Vector addition in CUDA, the plain kernel: one thread adds one element."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_add
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)


@kept
def vector_add(a: Float[Tensor, "N"], b: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """out[i] = a[i] + b[i].

    Shapes: a and b (N,), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; 16-bit types are added in float32 and rounded once.
    Tail: threads beyond N do nothing. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; build.CudaError if the launch
    fails.
    Source: see vector_add.cu.
    """
    check_add("vector_add", a, b, ndim=1, float64=True)
    (N,) = a.shape
    out = a.new_empty(N)
    if N > 0:
        build.launch(
            "vector_add/vector_add", "vector_add", a.device,
            a, b, out, N, a.stride(0), b.stride(0), build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
