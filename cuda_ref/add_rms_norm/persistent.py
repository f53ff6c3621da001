"""A residual connection and root mean square normalization of long rows in CUDA. Unlike registers.py, blocks stay on
the device, hold the sum of a row in shared memory, and add the next row while they write this one."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm_pair
from cuda_ref._runtime.device import multiprocessors
from cuda_ref._runtime.kept import kept
from cuda_ref.add_rms_norm import Matrix
from cuda_ref.common.rows import PACK_BYTES, are_packed

DETERMINISTIC = True
LEAST_BYTES = 32768  # of a row: blocks of registers.py share a multiprocessor and overlap if rows are shorter


@kept
def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[Tensor, "N"], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps).

    Shapes: x and residual (M, N), weight (N,), rows of at least 32 KiB that fit the shared memory of a block (226 KiB
    on an H100); the outputs are contiguous.
    Strides: each row must be contiguous and begin and end at multiples of 16 bytes. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once. y is computed from the rounded r.
    Tail: columns beyond N are left out. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for other rows; build.CudaError if the launch
    fails.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    M, N = x.shape
    if N * x.element_size() < LEAST_BYTES:
        size = N * x.element_size()
        raise NotImplementedError(f"add_rms_norm: rows must have at least {LEAST_BYTES} bytes; got {size}")
    y, r = x.new_empty(M, N), residual.new_empty(M, N)
    if y.numel() > 0:
        weight = weight.contiguous()
        if not (are_packed(x, weight) and are_packed(residual)):
            raise NotImplementedError(f"add_rms_norm: rows must begin and end at multiples of {PACK_BYTES} bytes")
        build.launch(
            "add_rms_norm/persistent", "add_rms_norm_persistent", x.device,
            x, residual, weight, y, r, M, N, x.stride(0), residual.stride(0), eps, min(M, multiprocessors(x.device)),
            build.DTYPES[x.dtype],
        )  # fmt: skip
    return y, r
