"""Vector addition in CUDA by 16-byte accesses. Unlike in the plain kernel a thread adds a whole pack."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_add
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def vector_add(a: Float[Tensor, "N"], b: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """out[i] = a[i] + b[i].

    Shapes: a and b (N,), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; 16-bit types are added in float32 and rounded once.
    Tail: the elements after the last pack of 16 bytes are added one by one, and so are vectors that are strided or do
    not start at a multiple of 16 bytes. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; build.CudaError if the launch
    fails.
    Source: see vectorized.cu.
    """
    check_add("vector_add", a, b, ndim=1)
    (N,) = a.shape
    out = a.new_empty(N)
    if N > 0:
        build.launch(
            "vector_add/vectorized", "vector_add_vectorized", a.device,
            a, b, out, N, a.stride(0), b.stride(0), build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
