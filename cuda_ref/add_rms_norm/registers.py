"""A residual connection and root mean square normalization in CUDA. Unlike the plain kernel it holds the sum of a row
in registers, and reads the operands once."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm_pair
from cuda_ref._runtime.kept import kept
from cuda_ref.add_rms_norm import Matrix

DETERMINISTIC = True


@kept
def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[Tensor, "N"], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps).

    Shapes: x and residual (M, N), weight (N,), any strides; the outputs are contiguous. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once. y is computed from the rounded r.
    Tail: columns beyond N are left out. Rows that do not begin and end at multiples of 16 bytes are read element by
    element; of these, and of rows beyond 128 KiB, r is read again. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if the launch fails.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    M, N = x.shape
    y, r = x.new_empty(M, N), residual.new_empty(M, N)
    if y.numel() > 0:
        weight = weight.contiguous()
        build.launch(
            "add_rms_norm/registers", "add_rms_norm_registers", x.device,
            x, residual, weight, y, r, M, N, *x.stride(), *residual.stride(), eps, build.DTYPES[x.dtype],
        )  # fmt: skip
    return y, r
