"""Max pooling in CUDA by 16-byte accesses: adds packs of channels, and indices of 32 bits, to the plain kernel."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_max_pool2d
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
PACK_BYTES = 16


@kept
def max_pool2d(
    x: Float[Tensor, "N H W C"], *, window: tuple[int, int], stride: int = 1, padding: int = 0
) -> Float[Tensor, "N P Q C"]:
    """out[n, p, q, c] = max over r < R, s < S of x[n, p stride + r - padding, q stride + s - padding, c], inside x.

    Shapes, dtypes and devices are those of the plain kernel; C and the strides of x must be multiples of 16 bytes, and
    channels contiguous.
    Raises: ValueError as the plain kernel does; NotImplementedError for other channels, strides and addresses, and for
    2^31 packs and more; build.CudaError if the launch fails.
    Source: see vectorized.cu.
    """
    P, Q = check_max_pool2d(x, window=window, stride=stride, padding=padding)
    N, H, W, C = x.shape
    lanes = PACK_BYTES // x.element_size()
    *outer, stride_c = x.stride()
    if stride_c != 1 or C % lanes != 0 or any(each % lanes for each in outer) or x.data_ptr() % PACK_BYTES != 0:
        raise NotImplementedError(
            f"max_pool2d: channels must be contiguous, in aligned packs of {lanes}; got {tuple(x.shape)}, {x.stride()}"
        )
    out = x.new_empty(N, P, Q, C)
    packs = out.numel() // lanes
    if packs >= 2**31:
        raise NotImplementedError(f"max_pool2d: packs must be fewer than 2^31; got {packs}")
    if packs > 0:
        build.launch(
            "max_pool2d/vectorized", "max_pool2d_vectorized", x.device,
            x, out, packs, H, W, C // lanes, *outer, *window, P, Q, stride, padding, build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
