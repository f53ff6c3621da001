"""Products of each expert's rows with its weights in CUDA on Hopper's tensor cores: persistent blocks, TMA.

Adds to `cuda` tensor cores, and blocks that find several tiles from the sizes and compute them in turn.
"""

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.experts import check_grouped_matmul
from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.layouts import find_tma_layout

REQUIRES = "sm_90"
SMALL, LARGE, PAIRED = 0, 1, 2
"""Numbers of the tiles: 64 x 128, 128 x 256, and 256 x 256 in clusters of two blocks."""
FEW_ROWS = 64
"""Tiles have 64 rows if experts have at most this many on average."""


@kept
def grouped_matmul(
    x: Float[Tensor, "T K"], weight: Float[Tensor, "E K N"], sizes: Int32[Tensor, "E"]
) -> Float[Tensor, "T N"]:
    """out[t, n] = sum over k of x[t, k] * weight[e, k, n], where row t is among the sizes[e] rows of expert e.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host does not read them.

    Shapes: x (T, K), weight (E, K, N), sizes (E,), K = 0 included; the output is contiguous.
    Strides: TMA copies the tiles. x must be contiguous along K, weight along K or N; their other strides must be
    multiples of 8 elements, and the first elements at multiples of 16 bytes. Sizes may have any stride.
    Dtypes: float16, bfloat16; sums in float32, rounded once at the end; sizes int32.
    Tail: TMA pads with zeros beyond K and N. Rows of the next expert in a tile are multiplied, and not stored.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for
    float32, for other strides, for more than 2^30 rows, columns or tiles, and on other devices; build.CudaError if the
    launch fails.
    Source: see wgmma.cu.
    """
    return run(tile_of(x, weight), x, weight, sizes)


def config(x: Tensor, weight: Tensor, sizes: Tensor) -> str:
    """The kernel and its tile."""
    if x.numel() * weight.numel() == 0:
        return ""
    return "wgmma 64x128" if tile_of(x, weight) == SMALL else "wgmma 128x256"


def tile_of(x: Tensor, weight: Tensor) -> int:
    """The small tile if experts have few rows on average: more would leave most of a large one empty."""
    return SMALL if x.shape[0] <= FEW_ROWS * weight.shape[0] else LARGE


def run(tile: int, x: Tensor, weight: Tensor, sizes: Tensor) -> Tensor:
    """The products by tiles with this number. Raises the errors that `grouped_matmul` documents."""
    T, E, K, N = check_grouped_matmul(x, weight, sizes)
    if x.dtype == torch.float32:
        raise NotImplementedError("grouped_matmul: tensor cores multiply float16 and bfloat16; got torch.float32")
    if max(T, E, K, N) > 2**30 or (T // 64 + min(T, E)) * -(-N // 128) > 2**30:
        raise NotImplementedError(f"grouped_matmul: sizes and tiles must be at most 2^30; got {(T, E, K, N)}")
    if T * K * N == 0:
        return x.new_zeros(T, N)
    layout, stride_x = weight_layout(weight), x_stride(x)
    out = x.new_empty(T, N)
    build.launch(
        "grouped_matmul/wgmma", "grouped_matmul_wgmma", x.device,
        x, weight, sizes, out, T, E, K, N, stride_x, *layout, *sizes.stride(), tile, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out


def x_stride(x: Tensor) -> int:
    """The distance of rows of x in elements. Raises NotImplementedError unless TMA can copy x with K contiguous."""
    found = find_tma_layout(x, k_dim=1, k_major_only=True)
    if found is None:
        raise _no_layout("x", "along K", x)
    return found[1]


def weight_layout(weight: Tensor) -> tuple[bool, int, int]:
    """Whether the weights are contiguous along N, and the strides of the other dimension and of the experts.

    Raises NotImplementedError unless TMA can copy them.
    """
    found, expert = find_tma_layout(weight[0], k_dim=0), weight.stride(0)
    if found is not None and weight.shape[0] == 1:
        expert = found[1] * max(weight.shape[1:])  # a valid stride, without effect
    if found is None or expert <= 0 or expert * weight.element_size() % 16 != 0:
        raise _no_layout("weight", "along K or N", weight)
    return *found, expert


def _no_layout(name: str, contiguous: str, x: Tensor) -> NotImplementedError:
    return NotImplementedError(
        f"grouped_matmul: TMA needs {name} contiguous {contiguous}, the other strides multiples of 16 bytes, and the "
        f"first element at a multiple of 16 bytes; got strides {x.stride()}, the first element {x.data_ptr() % 16} "
        "bytes past such a multiple"
    )
