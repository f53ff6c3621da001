"""Products of each expert's rows with its weights in float8 in Triton, persistent: programs compute tile after tile.

Adds loads by TMA to the plain kernel, and, within an expert, groups of tiles that share operands in the L2 cache.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._common.tma import find_tma
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.experts import check_grouped_block_scaled_matmul
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.products import GROUP
from triton_kernels.grouped_matmul import check_sizes, experts_of
from triton_kernels.grouped_matmul._configs_persistent import short_list

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)


@triton.jit
def persistent_grouped_block_scaled_kernel(
    x_desc, w_desc, scale_x_ptr, scale_w_ptr, sizes_ptr, y_ptr, T, E, K, N,
    stride_sxt, stride_sxk, stride_swe, stride_swn, stride_swk, stride_s,
    EXPERTS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles program_id, program_id + num_programs, ... of all experts.

    It finds tiles as the kernel of grouped_matmul does, and scales the sums of groups as that of block_scaled_matmul
    does: the tensor cores sum a group from zero, and BLOCK_N divides GROUP, so the columns of a tile have one scale.
    TMA reads zeros beyond K and N. Rows of the next expert in a tile are multiplied, and not stored.
    """
    experts = tl.arange(0, EXPERTS)
    sizes = tl.load(sizes_ptr + experts.to(tl.int64) * stride_s, mask=experts < E, other=0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(sizes, BLOCK_M) * tiles_n
    through = tl.cumsum(tiles, 0)  # tiles of an expert and of those before it
    for tile in range(tl.program_id(0), tl.sum(tiles, 0), tl.num_programs(0)):
        before = through <= tile
        expert = tl.sum(before.to(tl.int32), 0)
        start = tl.sum(tl.where(before, sizes, 0), 0)
        size = tl.sum(tl.where(experts == expert, sizes, 0), 0)
        within = tile - tl.sum(tl.where(before, tiles, 0), 0)
        pid_m, pid_n = grouped_tile_any(within, tl.cdiv(size, BLOCK_M), tiles_n, GROUP_M)
        row, column = start + pid_m * BLOCK_M, pid_n * BLOCK_N
        rows = (row + tl.arange(0, BLOCK_M)).to(tl.int64)
        columns = column + tl.arange(0, BLOCK_N)
        inside = rows < tl.minimum(start + size, T)
        scale_x_ptrs = scale_x_ptr + rows * stride_sxt
        scale_w_at = scale_w_ptr + expert.to(tl.int64) * stride_swe + (column // GROUP).to(tl.int64) * stride_swn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, GROUP):
            x = x_desc.load([row, k])
            w = w_desc.load([expert, column, k]).reshape(BLOCK_N, GROUP).T
            scale = tl.load(scale_x_ptrs, mask=inside, other=0.0) * tl.load(scale_w_at)
            acc += tl.dot(dot_operand(x), dot_operand(w)) * scale[:, None]
            scale_x_ptrs += stride_sxk
            scale_w_at += stride_swk
        tl.store(y_ptr + rows[:, None] * N + columns[None, :], acc, mask=inside[:, None] & (columns[None, :] < N))


def set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors the block shapes of the configuration."""
    args["x_desc"].block_shape = [args["BLOCK_M"], args["GROUP"]]
    args["w_desc"].block_shape = [1, args["BLOCK_N"], args["GROUP"]]


def _config(BLOCK_M: int, BLOCK_N: int, GROUP_M: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "GROUP_M": GROUP_M}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=set_blocks)


# Small tiles are for experts with few rows: a tile has rows of one expert only.
CONFIGS = [
    _config(128, 128, 8, 8, 4),
    _config(128, 128, 8, 8, 5),
    _config(64, 128, 8, 4, 6),
    _config(64, 64, 8, 4, 8),
]


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times: all tiles with 3 to 8 stages."""
    tiles = ((128, 128, 8), (128, 64, 8), (64, 128, 4), (64, 64, 4))
    sizes = ((m, n, warps, stages) for m, n, warps in tiles for stages in range(3, 9) if stages * (m + n) <= 1600)
    return short_list([_config(m, n, rows, warps, stages) for m, n, warps, stages in sizes for rows in (8, 16)], args)


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128, "GROUP_M": 4}
else:
    TILE = {}
    KEY = ["T", "E", "K", "N"]
    persistent_grouped_block_scaled_kernel = autotune(CONFIGS, KEY, short_list)(persistent_grouped_block_scaled_kernel)


@kept
def grouped_block_scaled_matmul(
    x: Float[Tensor, "T K"],
    scale_x: Float[Tensor, "T G_K"],
    weight: Float[Tensor, "E N K"],
    scale_weight: Float[Tensor, "E G_N G_K"],
    sizes: Int32[Tensor, "E"],
) -> Float[Tensor, "T N"]:
    """y[t, n] = sum over groups g of scale_x[t, g] scale_weight[e, n // 128, g] (sum over k in g of x[t, k] w[e, n, k])

    Row t is among the sizes[e] rows of expert e. The rows are in the order of the experts; sizes are not negative, and
    their sum is T. The host does not read them.

    Shapes: x (T, K), weight (E, N, K), sizes (E,), scale_x (T, K / 128), scale_weight (E, N / 128, K / 128), rounded
    up; K = 0 included. The output is contiguous.
    Strides: TMA copies the tiles of x and weight, which must be contiguous along K; their other strides and their first
    elements must be at multiples of 16 bytes. Scales and sizes may have any strides.
    Dtypes: as the plain kernel.
    Tail: TMA reads zeros beyond K and N; rows of the next expert are not written.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other strides, for sizes above 2^26,
    and for a GPU without TMA.
    Source: `triton/persistent` of grouped_matmul and of block_scaled_matmul, in one.
    """
    T, E, K, N = check_grouped_block_scaled_matmul(x, scale_x, weight, scale_weight, sizes)
    check_sizes("grouped_block_scaled_matmul", T, E, K, N)
    if x.is_cuda and not INTERPRET and torch.cuda.get_device_capability(x.device)[0] < 9:
        raise NotImplementedError("grouped_block_scaled_matmul: TMA needs compute capability 9.0")
    if T * K * N == 0:
        return torch.zeros((T, N), dtype=torch.bfloat16, device=x.device)
    descriptors = _descriptor("x", x), _descriptor("weight", weight)
    out = empty_output((T, N), torch.bfloat16, x.device)
    constants: dict[str, Any] = {"EXPERTS": experts_of(E), "GROUP": GROUP, **TILE}
    if INTERPRET:
        set_blocks({"x_desc": descriptors[0], "w_desc": descriptors[1], **constants})
        processors = 2
    else:
        processors = multiprocessors(x)

    def grid(tile: dict[str, int]) -> tuple[int]:
        most = (T // tile["BLOCK_M"] + min(T, E)) * triton.cdiv(N, tile["BLOCK_N"])
        return (min(most, processors),)

    with device_of(x):
        launch(
            persistent_grouped_block_scaled_kernel, grid,
            *descriptors, scale_x, scale_weight, sizes, out, T, E, K, N,
            *scale_x.stride(), *scale_weight.stride(), *sizes.stride(), **constants,
        )  # fmt: skip
    return finished_output(out, torch.bfloat16)


def _descriptor(name: str, x: Tensor) -> TensorDescriptor:
    """The TMA descriptor of x (T, K) or of weights (E, N, K). `set_blocks` sets its block shape."""
    matrix = x if x.ndim == 2 else x[0]
    found = find_tma(matrix, x.element_size())
    pitch = found.pitch if found is not None and found.row_major else 0
    expert = [pitch * matrix.shape[0] if x.shape[0] == 1 else x.stride(0)] if x.ndim == 3 else []
    if pitch == 0 or any(stride <= 0 or stride % 16 != 0 for stride in expert):
        raise NotImplementedError(
            f"grouped_block_scaled_matmul: TMA needs {name} contiguous along K, the other strides multiples of 16 "
            f"bytes, and the first element at a multiple of 16 bytes; got strides {x.stride()}"
        )
    return TensorDescriptor(x, list(x.shape), [*expert, pitch, 1], [1] * (x.ndim - 1) + [16])
