"""A gated linear unit's product in CUDA by 16-byte accesses: adds packs, and a short sigmoid, to the plain kernel."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_gated
from cuda_ref._runtime.kept import kept
from cuda_ref.common.packs import gapless, one_row

DETERMINISTIC = True


@kept
def silu_mul(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"], *, activation: str = "silu") -> Float[Tensor, "M N"]:
    """out[i, j] = act(a[i, j]) * b[i, j]; act is silu, or gelu by its approximation with tanh.

    Shapes: a and b (M, N); the output is contiguous. Strides: any from row to row; torch first copies rows with gaps.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: elements after the last pack of 16 bytes are computed one by one, and so are rows that do not begin and end
    at multiples of 16 bytes. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and activations; build.CudaError if the launch fails.
    """
    check_gated("silu_mul", a, b, activation=activation)
    out = a.new_empty(a.shape)
    if out.numel() > 0:
        a, b = gapless(a), gapless(b)
        m, n, strides = one_row(a, b)
        build.launch(
            "silu_mul/vectorized", "silu_mul_vectorized", a.device,
            a, b, out, m, n, *strides, activation == "gelu_tanh", build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
