"""Gradients of each expert's weights in CUDA on Hopper's tensor cores: persistent blocks, TMA.

Adds tensor cores and blocks that compute several tiles to `cuda`.
"""

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.experts import check_grouped_matmul_grad
from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.layouts import find_tma_layout

REQUIRES = "sm_90"
TILE = (128, 256)


@kept
def grouped_matmul_grad(
    x: Float[Tensor, "T K"], dy: Float[Tensor, "T N"], sizes: Int32[Tensor, "E"]
) -> Float[Tensor, "E K N"]:
    """dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] * dy[t, n]; zeros for an expert without rows.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host does not read them.

    Shapes: x (T, K), dy (T, N), sizes (E,); the output is contiguous.
    Strides: TMA copies the tiles. Rows of x and dy must be contiguous, begin at multiples of 8 elements, and the first
    at a multiple of 16 bytes. Sizes may have any stride.
    Dtypes: float16, bfloat16; sums in float32, rounded once at the end; sizes int32.
    Tail: TMA pads with zeros beyond K and N; rows of the next expert in a step are set to zero in shared memory.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for
    float32, for other strides, for more than 2^30 rows of x or of the output, or tiles, and on other devices;
    build.CudaError if the launch fails.
    Source: see wgmma.cu.
    """
    T, E, K, N = check_grouped_matmul_grad(x, dy, sizes)
    if x.dtype == torch.float32:
        raise NotImplementedError("grouped_matmul_grad: tensor cores multiply float16 and bfloat16; got torch.float32")
    tiles = E * -(-K // TILE[0]) * -(-N // TILE[1])
    if max(T, E * K, N, tiles) > 2**30:
        raise NotImplementedError(
            f"grouped_matmul_grad: T, E * K, N and the tiles must be at most 2^30; got {(T, E * K, N, tiles)}"
        )
    if T * E * K * N == 0:
        return x.new_zeros(E, K, N)
    strides = row_stride("x", x), row_stride("dy", dy)
    out = x.new_empty(E, K, N)
    build.launch(
        "grouped_matmul_grad/wgmma", "grouped_matmul_grad_wgmma", x.device,
        x, dy, sizes, out, T, E, K, N, *strides, *sizes.stride(), build.DTYPES[x.dtype],
    )  # fmt: skip
    return out


def row_stride(name: str, x: Tensor) -> int:
    """The distance of rows in elements. Raises NotImplementedError unless TMA can copy x with rows contiguous."""
    found = find_tma_layout(x, k_dim=1, k_major_only=True)
    if found is None:
        raise NotImplementedError(
            f"grouped_matmul_grad: TMA needs rows of {name} contiguous, their distance a multiple of 16 bytes, and the "
            f"first element at a multiple of 16 bytes; got strides {x.stride()}, the first element "
            f"{x.data_ptr() % 16} bytes past such a multiple"
        )
    return found[1]
