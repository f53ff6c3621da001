"""Matrix addition in CUDA: every operand is read along its contiguous dimension."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build

DETERMINISTIC = True


def matrix_add(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """out[m, n] = a[m, n] + b[m, n].

    Shapes: a and b (M, N), any strides: transposed, sliced, broadcast (stride 0); the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; 16-bit types are added in float32 and rounded once.
    Tail: blocks at the right and lower edge leave out what lies beyond; rows that do not all start on a multiple of
    16 bytes are read one element an access. Indices are int64.
    Devices: CUDA; on the CPU, for agreement only, the same kernels emulated.
    Errors: ValueError for other shapes and dtypes, and for two devices; build.CudaError if the launch fails.
    Source: see matrix_add.cu, which also says which layouts take which kernel.
    """
    if a.dim() != 2:
        raise ValueError(f"matrix_add: a must be (M, N); got {tuple(a.shape)}")
    if b.shape != a.shape:
        raise ValueError(f"matrix_add: a is (M, N)={tuple(a.shape)}, so b must be too; got {tuple(b.shape)}")
    if a.dtype not in build.DTYPES:
        raise ValueError(f"matrix_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matrix_add: a is {a.dtype}, so b must be too; got {b.dtype}")
    if b.device != a.device:
        raise ValueError(f"matrix_add: a is on {a.device}, so b must be too; got {b.device}")

    M, N = a.shape
    out = a.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "matrix_add", "matrix_add", a.device,
            a, b, out, M, N, *a.stride(), *b.stride(), build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
