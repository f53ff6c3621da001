"""Root mean square normalization of long rows in CUDA: adds clusters of blocks that share each row to registers.py."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm
from cuda_ref._runtime.kept import kept
from cuda_ref.common.rows import are_packed, sharing

DETERMINISTIC = True
REQUIRES = "sm_90"


@kept
def rms_norm(x: Float[Tensor, "M N"], weight: Float[Tensor, "N"], *, eps: float) -> Float[Tensor, "M N"]:
    """out[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps).

    Shapes: x (M, N), weight (N,), rows of more than 64 KiB and at most 512 KiB; the output is contiguous.
    Strides: each row must be contiguous and begin and end at multiples of 16 bytes. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: columns beyond N are left out. Indices are int64.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for other rows and on other devices;
    build.CudaError if the launch fails.
    """
    check_norm("rms_norm", x, weight=weight)
    M, N = x.shape
    out = x.new_empty(M, N)
    if out.numel() > 0:
        weight = weight.contiguous()
        shared = sharing("rms_norm", x, are_packed(x, weight))
        build.launch(
            "rms_norm/cluster", "rms_norm_cluster", x.device,
            x, weight, out, M, N, x.stride(0), eps, *shared, build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
