"""Max pooling in CUDA, the plain kernel: one thread computes one element of the output."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_max_pool2d
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def max_pool2d(
    x: Float[Tensor, "N H W C"], *, window: tuple[int, int], stride: int = 1, padding: int = 0
) -> Float[Tensor, "N P Q C"]:
    """out[n, p, q, c] = max over r < R, s < S of x[n, p stride + r - padding, q stride + s - padding, c], inside x.

    Shapes: x (N, H, W, C), any strides; window (R, S), with padding at most half of it. The output is contiguous.
    Dtypes: float32, float16, bfloat16; a result is one of the inputs. NaN is larger than all numbers.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, windows and dtypes; build.CudaError if the launch fails.
    Source: see max_pool2d.cu.
    """
    P, Q = check_max_pool2d(x, window=window, stride=stride, padding=padding)
    N, H, W, C = x.shape
    out = x.new_empty(N, P, Q, C)
    if out.numel() > 0:
        build.launch(
            "max_pool2d/max_pool2d", "max_pool2d", x.device,
            x, out, N, H, W, C, *x.stride(), *window, P, Q, stride, padding, build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
