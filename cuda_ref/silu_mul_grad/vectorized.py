"""The gradients of a gated linear unit's product in CUDA by 16-byte accesses: adds packs to the plain kernel."""

from cuda_ref import build
from cuda_ref._runtime.contract import check_gated
from cuda_ref._runtime.kept import kept
from cuda_ref.common.packs import gapless, one_row
from cuda_ref.silu_mul_grad import Matrix

DETERMINISTIC = True


@kept
def silu_mul_grad(a: Matrix, b: Matrix, dy: Matrix, *, activation: str = "silu") -> tuple[Matrix, Matrix]:
    """(da, db): gradients of the sum of dy * y, where y is the `silu_mul` of a and b.

    Shapes: a, b and dy (M, N); the outputs are contiguous. Strides: any from row to row; torch first copies rows with
    gaps.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: elements after the last pack of 16 bytes are computed one by one, and so are rows that do not begin and end
    at multiples of 16 bytes. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and activations; build.CudaError if the launch fails.
    """
    check_gated("silu_mul_grad", a, b, dy, activation=activation)
    da, db = a.new_empty(a.shape), b.new_empty(b.shape)
    if da.numel() > 0:
        a, b, dy = gapless(a), gapless(b), gapless(dy)
        m, n, strides = one_row(a, b, dy)
        build.launch(
            "silu_mul_grad/vectorized", "silu_mul_grad_vectorized", a.device,
            a, b, dy, da, db, m, n, *strides, activation == "gelu_tanh", build.DTYPES[a.dtype],
        )  # fmt: skip
    return da, db
