"""Softmax of long rows in CUDA: adds clusters of blocks that share each row to registers.py."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_rows
from cuda_ref._runtime.kept import kept
from cuda_ref.common.rows import are_packed, sharing

DETERMINISTIC = True
REQUIRES = "sm_90"


@kept
def softmax(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """out[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]).

    Shapes: x (M, N), rows of more than 64 KiB and at most 512 KiB; the output is contiguous.
    Strides: each row must be contiguous and begin and end at multiples of 16 bytes.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: columns beyond N are minus infinity. Indices are int64.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for other rows and on other devices;
    build.CudaError if the launch fails.
    """
    check_rows("softmax", x)
    M, N = x.shape
    out = x.new_empty(M, N)
    if out.numel() > 0:
        shared = sharing("softmax", x, are_packed(x))
        build.launch(
            "softmax/cluster", "softmax_cluster", x.device,
            x, out, M, N, x.stride(0), *shared, build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
