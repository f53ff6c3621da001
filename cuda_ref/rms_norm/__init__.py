"""Root mean square normalization of each row of a matrix in CUDA, the plain kernel: a warp reads its row twice."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)


@kept
def rms_norm(x: Float[Tensor, "M N"], weight: Float[Tensor, "N"], *, eps: float) -> Float[Tensor, "M N"]:
    """out[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps).

    Shapes: x (M, N), weight (N,), any strides; the output is contiguous. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: the lanes of a warp take every 32nd column up to N. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if the launch fails.
    """
    check_norm("rms_norm", x, weight=weight, float64=True)
    M, N = x.shape
    out = x.new_empty(M, N)
    if out.numel() > 0:
        weight = weight.contiguous()
        build.launch(
            "rms_norm/rms_norm", "rms_norm", x.device,
            x, weight, out, M, N, *x.stride(), eps, build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
