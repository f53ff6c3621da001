"""Products of each expert's rows with its weights in float8 in CUDA on Hopper's tensor cores: scaled sums of groups.

Adds TMA, wgmma and persistent blocks to `cuda`, as grouped_matmul/wgmma.py does.
"""

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.experts import check_grouped_block_scaled_matmul
from cuda_ref._runtime.kept import kept
from cuda_ref.grouped_matmul.wgmma import SMALL, tile_of
from cuda_ref.hopper.layouts import find_tma_layout

REQUIRES = "sm_90"
DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)


@kept
def grouped_block_scaled_matmul(
    x: Float[Tensor, "T K"],
    scale_x: Float[Tensor, "T G_K"],
    weight: Float[Tensor, "E N K"],
    scale_weight: Float[Tensor, "E G_N G_K"],
    sizes: Int32[Tensor, "E"],
) -> Float[Tensor, "T N"]:
    """out[t, n] = sum over groups g of scale_x[t, g] * scale_weight[e, n / 128, g] * (the sum of the group's products).

    The products are x[t, k] * weight[e, n, k], where row t is among the sizes[e] rows of expert e. The rows are in the
    order of the experts; sizes are not negative, and their sum is T. The host does not read them.

    Shapes: x (T, K), weight (E, N, K), sizes (E,), scale_x (T, K / 128), scale_weight (E, N / 128, K / 128), rounded
    up; K = 0 included. The output is contiguous.
    Strides: TMA copies the tiles of x and weight, which must be contiguous along K; their other strides and their first
    elements must be at multiples of 16 bytes. Scales and sizes may have any strides.
    Dtypes: float8_e4m3fn, scales float32, sizes int32, output bfloat16. The tensor cores keep 14 bits of the sum of a
    group; scaled sums are added in float32 and rounded once.
    Tail: TMA pads with zeros beyond K and N. Rows of the next expert in a tile are multiplied, and not stored.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and devices; NotImplementedError for other strides, for more than 2^30
    rows, columns or tiles, and on other devices; build.CudaError if the launch fails.
    Source: see wgmma.cu.
    """
    return run(tile_of(x, weight), x, scale_x, weight, scale_weight, sizes)


def config(x: Tensor, scale_x: Tensor, weight: Tensor, scale_weight: Tensor, sizes: Tensor) -> str:
    """The kernel and its tile."""
    if x.numel() * weight.numel() == 0:
        return ""
    return "wgmma 64x128" if tile_of(x, weight) == SMALL else "wgmma 128x256"


def run(tile: int, x: Tensor, scale_x: Tensor, weight: Tensor, scale_weight: Tensor, sizes: Tensor) -> Tensor:
    """The products by tiles with this number. Raises the errors that `grouped_block_scaled_matmul` documents."""
    T, E, K, N = check_grouped_block_scaled_matmul(x, scale_x, weight, scale_weight, sizes)
    if max(T, E, K, N) > 2**30 or (T // 64 + min(T, E)) * -(-N // 128) > 2**30:
        raise NotImplementedError(
            f"grouped_block_scaled_matmul: sizes and tiles must be at most 2^30; got {(T, E, K, N)}"
        )
    if T * K * N == 0:
        return x.new_zeros(T, N, dtype=torch.bfloat16)
    (stride_x,), (stride_we, stride_wn) = _strides("x", x), _strides("weight", weight)
    out = x.new_empty(T, N, dtype=torch.bfloat16)
    build.launch(
        "grouped_block_scaled_matmul/wgmma", "grouped_block_scaled_wgmma", x.device,
        x, weight, sizes, out, T, E, K, N, stride_x, stride_wn, stride_we, scale_x, scale_weight, *scale_x.stride(),
        *scale_weight.stride(), *sizes.stride(), tile,
    )  # fmt: skip
    return out


def _strides(name: str, x: Tensor) -> list[int]:
    """The strides of x (T, K) or of weights (E, N, K), without that of K. Those of a dimension of 1 have no effect.

    Raises NotImplementedError unless TMA can copy x.
    """
    matrix = x if x.ndim == 2 else x[0]
    found = find_tma_layout(matrix, k_dim=1, k_major_only=True)
    pitch = found[1] if found is not None else 0
    strides = [pitch] if x.ndim == 2 else [pitch * matrix.shape[0] if x.shape[0] == 1 else x.stride(0), pitch]
    if any(stride <= 0 or stride % 16 != 0 for stride in strides):
        raise NotImplementedError(
            f"grouped_block_scaled_matmul: TMA needs {name} contiguous along K, the other strides multiples of 16 "
            f"bytes, and the first element at a multiple of 16 bytes; got strides {x.stride()}, the first element "
            f"{x.data_ptr() % 16} bytes past such a multiple"
        )
    return strides
