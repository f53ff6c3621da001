"""Vector addition in CUDA: one 16-byte access of each operand a thread."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build

DETERMINISTIC = True


def vector_add(a: Float[Tensor, "N"], b: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """out[i] = a[i] + b[i].

    Shapes: a and b (N,), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; 16-bit types are added in float32 and rounded once.
    Tail: what is left after the last pack of 16 bytes is added one by one; so are vectors that are strided or do not
    start on a multiple of 16 bytes. Indices are int64.
    Devices: CUDA; on the CPU, for agreement only, the same kernel emulated.
    Errors: ValueError for other shapes and dtypes, and for two devices; build.CudaError if the launch fails.
    Source: see vector_add.cu.
    """
    if a.dim() != 1:
        raise ValueError(f"vector_add: a must be (N,); got {tuple(a.shape)}")
    if b.shape != a.shape:
        raise ValueError(f"vector_add: a is (N,)={tuple(a.shape)}, so b must be too; got {tuple(b.shape)}")
    if a.dtype not in build.DTYPES:
        raise ValueError(f"vector_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"vector_add: a is {a.dtype}, so b must be too; got {b.dtype}")
    if b.device != a.device:
        raise ValueError(f"vector_add: a is on {a.device}, so b must be too; got {b.device}")

    (N,) = a.shape
    out = a.new_empty(N)
    if N > 0:
        build.launch(
            "vector_add", "vector_add", a.device,
            a, b, out, N, a.stride(0), b.stride(0), build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
