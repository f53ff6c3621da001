"""Root mean square normalization of each row of a matrix in CUDA. Unlike the plain kernel it holds a row in registers,
and reads it once."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def rms_norm(x: Float[Tensor, "M N"], weight: Float[Tensor, "N"], *, eps: float) -> Float[Tensor, "M N"]:
    """out[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps).

    Shapes: x (M, N), weight (N,), any strides; the output is contiguous. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: columns beyond N are left out. Rows that do not begin and end at multiples of 16 bytes are read element by
    element; rows beyond 128 KiB are read twice. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if the launch fails.
    """
    check_norm("rms_norm", x, weight=weight)
    M, N = x.shape
    out = x.new_empty(M, N)
    if out.numel() > 0:
        weight = weight.contiguous()
        build.launch(
            "rms_norm/registers", "rms_norm_registers", x.device,
            x, weight, out, M, N, *x.stride(), eps, build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
