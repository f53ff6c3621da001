"""The gradient of max pooling in CUDA, the plain kernel: one thread gathers the gradient of one pixel."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_max_pool2d_grad
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def max_pool2d_grad(
    x: Float[Tensor, "N H W C"],
    dy: Float[Tensor, "N P Q C"],
    *,
    window: tuple[int, int],
    stride: int = 1,
    padding: int = 0,
) -> Float[Tensor, "N H W C"]:
    """dx[n, h, w, c]: the sum of dy[n, p, q, c] over the windows whose largest pixel is x[n, h, w, c].

    If pixels of a window are equal, the first one counts, row by row. A NaN in x is not specified.

    Shapes: x (N, H, W, C), dy (N, P, Q, C), any strides; window (R, S), with padding at most half of it. dx is
    contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; sums in float32, rounded once.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, windows and dtypes; build.CudaError if the launch fails.
    Source: see max_pool2d_grad.cu.
    """
    P, Q = check_max_pool2d_grad(x, dy, window=window, stride=stride, padding=padding)
    N, H, W, C = x.shape
    dx = x.new_empty(N, H, W, C)
    if dx.numel() > 0:
        build.launch(
            "max_pool2d_grad/max_pool2d_grad", "max_pool2d_grad", x.device,
            x, dy, dx, N, H, W, C, *x.stride(), *dy.stride(), *window, P, Q, stride, padding, build.DTYPES[x.dtype],
        )  # fmt: skip
    return dx
