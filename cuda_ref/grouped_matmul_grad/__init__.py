"""Gradients of each expert's weights in CUDA, the plain kernel: one thread for each element."""

from jaxtyping import Float, Int32
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.experts import check_grouped_matmul_grad
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def grouped_matmul_grad(
    x: Float[Tensor, "T K"], dy: Float[Tensor, "T N"], sizes: Int32[Tensor, "E"]
) -> Float[Tensor, "E K N"]:
    """dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] * dy[t, n]; zeros for an expert without rows.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host does not read them.

    Shapes: x (T, K), dy (T, N), sizes (E,), any strides, any sizes; the output is contiguous.
    Dtypes: float32, float16, bfloat16; products and sums in float32, rounded once at the end; sizes int32.
    Tail: threads beyond the edge of the output do nothing. Offsets are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; build.CudaError if the launch
    fails.
    Source: see grouped_matmul_grad.cu.
    """
    _, E, K, N = check_grouped_matmul_grad(x, dy, sizes)
    out = x.new_empty(E, K, N)
    if out.numel() > 0:
        build.launch(
            "grouped_matmul_grad/grouped_matmul_grad", "grouped_matmul_grad", x.device,
            x, dy, sizes, out, E, K, N, *x.stride(), *dy.stride(), *sizes.stride(), build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
