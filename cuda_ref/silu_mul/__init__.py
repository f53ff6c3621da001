"""A gated linear unit's product in CUDA, the plain kernel: one thread computes one element."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_gated
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def silu_mul(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"], *, activation: str = "silu") -> Float[Tensor, "M N"]:
    """out[i, j] = act(a[i, j]) * b[i, j]; act is silu, or gelu by its approximation with tanh.

    Shapes: a and b (M, N), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: threads beyond the last element do nothing. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and activations; build.CudaError if the launch fails.
    """
    M, N = check_gated("silu_mul", a, b, activation=activation)
    out = a.new_empty(M, N)
    if out.numel() > 0:
        build.launch(
            "silu_mul/silu_mul", "silu_mul", a.device,
            a, b, out, M, N, *a.stride(), *b.stride(), activation == "gelu_tanh", build.DTYPES[a.dtype],
        )  # fmt: skip
    return out
