"""A residual connection and root mean square normalization in CUDA, the plain kernel: a warp reads its row twice."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm_pair
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True

Matrix = Float[Tensor, "M N"]


@kept
def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[Tensor, "N"], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps).

    Shapes: x and residual (M, N), weight (N,), any strides; the outputs are contiguous. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once. y is computed from the sum before its rounding.
    Tail: the lanes of a warp take every 32nd column up to N. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if the launch fails.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    M, N = x.shape
    y, r = x.new_empty(M, N), residual.new_empty(M, N)
    if y.numel() > 0:
        weight = weight.contiguous()
        build.launch(
            "add_rms_norm/add_rms_norm", "add_rms_norm", x.device,
            x, residual, weight, y, r, M, N, *x.stride(), *residual.stride(), eps, build.DTYPES[x.dtype],
        )  # fmt: skip
    return y, r
