"""The gradient of max pooling in CUDA: adds tiles in shared memory, where a window's winner is found once for all its
pixels, and 16-byte accesses to the plain kernel."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_max_pool2d_grad
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
PACK_BYTES = 16
SIZES = (2, 3)  # rows and columns of the windows that have a kernel


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

    Shapes, dtypes and devices are those of the plain kernel; windows are 2 x 2 or 3 x 3. C and the strides of x
    and dy must be multiples of 16 bytes, and channels contiguous. Sums in float32, rounded once. dx is contiguous.
    Raises: ValueError as the plain kernel does; NotImplementedError for other windows, channels, strides and addresses,
    and for 2^31 packs and more; build.CudaError if the launch fails.
    Source: see winners.cu.
    """
    P, Q = check_max_pool2d_grad(x, dy, window=window, stride=stride, padding=padding)
    N, H, W, C = x.shape
    lanes = PACK_BYTES // x.element_size()
    for name, each in (("x", x), ("dy", dy)):
        *outer, stride_c = each.stride()
        if stride_c != 1 or C % lanes != 0 or any(step % lanes for step in outer) or each.data_ptr() % PACK_BYTES != 0:
            raise NotImplementedError(
                f"max_pool2d_grad: channels of {name} must be contiguous, in aligned packs of {lanes}; "
                f"got {tuple(each.shape)}, {each.stride()}"
            )
    if window[0] != window[1] or window[0] not in SIZES:
        raise NotImplementedError(f"max_pool2d_grad: windows must be 2 x 2 or 3 x 3; got {window}")
    dx = x.new_empty(N, H, W, C)
    packs = dx.numel() // lanes
    if packs >= 2**31:
        raise NotImplementedError(f"max_pool2d_grad: packs must be fewer than 2^31; got {packs}")
    if packs > 0:
        build.launch(
            "max_pool2d_grad/winners", "max_pool2d_grad_by_winners", x.device,
            x, dy, dx, N, H, W, C // lanes, *x.stride()[:3], *dy.stride()[:3], window[0], P, Q, stride, padding,
            build.DTYPES[x.dtype],
        )  # fmt: skip
    return dx
